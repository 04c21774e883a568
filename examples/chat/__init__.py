"""A chat in the browser whose answers a service streams."""
