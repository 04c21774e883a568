"""What the server tells: audit, webhooks, metrics, logs."""
