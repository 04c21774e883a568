"""Nodes joined by Redis or Valkey: one script call numbers, keeps, de-duplicates and fans out."""
