"""HIP-56 over WebSockets."""
