"""Short programs that use Hanzo PubSub; each is run by a test."""
