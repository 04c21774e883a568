"""What performs: the driver and its timers, tokens, queues and handlers."""
