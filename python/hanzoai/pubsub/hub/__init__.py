"""Client of the hub protocol; codec of its bytes."""
