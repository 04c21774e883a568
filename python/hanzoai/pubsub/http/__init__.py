"""The HTTP API: calls as data, sent by httpx, repeated by tenacity."""
