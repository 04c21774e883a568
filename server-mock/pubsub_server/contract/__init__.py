"""Topic contracts: which payloads each topic carries, enforced by the server and made into code."""
