"""Topic contracts: the payloads of each topic, enforced by the server and turned into code."""
