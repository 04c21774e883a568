"""Spark jobs that publish, read, and report their progress."""
