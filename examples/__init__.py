"""Short programs that use Hanzo PubSub. A test runs each of them."""
