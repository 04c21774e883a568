"""Code written by spec/generate.py from spec/: wire types, lifecycle, errors, defaults."""
