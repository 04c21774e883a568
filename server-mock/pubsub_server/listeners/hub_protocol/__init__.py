"""The hub protocol of pub0sub: publishers learn how many subscribers a message had."""
