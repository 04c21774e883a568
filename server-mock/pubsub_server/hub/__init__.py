"""The hub: connections, routing, delivery and presence. It knows no sockets or other nodes."""
