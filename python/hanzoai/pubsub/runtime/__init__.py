"""The I/O of a client: the driver and its timers, tokens, queues and handlers."""
