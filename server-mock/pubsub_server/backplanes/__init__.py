"""What keeps the logs and joins the nodes."""
