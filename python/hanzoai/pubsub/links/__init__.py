"""What the byte protocols share: addresses, connections, timeouts, and unparsed bytes."""
