"""TCP: the first address that answers, one receive buffer per thread, keepalive."""
