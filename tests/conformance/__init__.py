"""Both SDKs against the real server: scenarios are data, each language has one process."""
