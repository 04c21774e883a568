"""Listeners: convert between the bytes of each protocol and the hub."""
