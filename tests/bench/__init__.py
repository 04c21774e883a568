"""Measurements beside named peers: `python -m tests.bench`. No tests; they print what they find."""
