"""HIP-56 over HTTP: requests, event streams, the console."""
