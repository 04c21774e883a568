"""Signed topics: SOC frames on WebSockets below `/pubsub/`, and on streams between nodes."""
