"""Every listener, limit and deadline, from flags, environment and one file."""
