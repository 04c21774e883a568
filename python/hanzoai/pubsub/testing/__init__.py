"""What a program needs to test its use of Hanzo PubSub."""
