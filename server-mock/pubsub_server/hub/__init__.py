"""The hub: connections, routing, delivery and presence; without sockets and nodes."""
