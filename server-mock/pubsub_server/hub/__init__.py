"""The hub: connections, routing, delivery and presence; knows no socket and no node."""
