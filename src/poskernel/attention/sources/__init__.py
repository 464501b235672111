"""Models of any kind as sources of queries and keys: loading, capture while they run, self-test."""
