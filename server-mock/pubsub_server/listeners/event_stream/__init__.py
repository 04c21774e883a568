"""The event stream protocol: topics of bytes, published and received on one connection."""
