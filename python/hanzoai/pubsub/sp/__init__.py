"""SP sockets, PUB and SUB; codec of their bytes."""
