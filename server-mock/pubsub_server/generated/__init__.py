"""Data written by spec/generate.py: the description of the HTTP interface, ``openapi.json``."""
