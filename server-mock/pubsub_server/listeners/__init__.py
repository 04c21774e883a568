"""Bytes to the hub and back."""
