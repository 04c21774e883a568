"""Bytes to frames and back, payloads checked and measured, message ids."""
