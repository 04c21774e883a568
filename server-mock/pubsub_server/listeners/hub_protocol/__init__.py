"""The hub protocol of pub0sub: publishers are told how many subscribers a message had."""
