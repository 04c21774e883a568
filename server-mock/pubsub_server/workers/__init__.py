"""Several processes on one port: one supervisor, workers joined by the backplane."""
