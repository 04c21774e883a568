"""What decides: events in, effects out. No clock, socket, task or randomness of its own."""
