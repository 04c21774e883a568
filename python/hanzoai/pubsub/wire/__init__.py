"""Converts bytes to frames and back, checks and measures payloads, creates message ids."""
