"""What each verb of the command line does: call, then print."""
