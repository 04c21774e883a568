"""The logic of a client: events in, effects out. It has no clock, socket, task or randomness."""
