"""Backplanes: they keep the logs and connect the nodes."""
