"""HIP-56 over HTTP: REST requests, event streams, the console."""
