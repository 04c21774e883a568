"""Several processes on one port: a supervisor, and workers connected by the backplane."""
