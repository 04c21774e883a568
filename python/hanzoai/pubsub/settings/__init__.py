"""Every setting of a client, its default, and the check of it."""
