"""Nodes that find each other and forward what somebody wants, without a store in between."""
