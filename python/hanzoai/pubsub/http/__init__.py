"""The HTTP API: calls as data, carried by httpx, repeated by tenacity."""
