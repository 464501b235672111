"""What `extend` predicts, put to the test: live models under settings, held-out texts, and the pages made of both."""
