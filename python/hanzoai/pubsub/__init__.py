"""Client of Hanzo PubSub."""
