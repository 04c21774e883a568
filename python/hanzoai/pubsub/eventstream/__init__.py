"""Client of the event stream; codec of its bytes."""
