"""What is measured of a head from captures, streamed and with intervals."""
