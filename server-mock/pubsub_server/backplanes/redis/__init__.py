"""Connects nodes by Redis or Valkey: one script call numbers, stores, deduplicates and fans out."""
