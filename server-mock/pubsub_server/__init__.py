"""Reference server of Hanzo PubSub."""
