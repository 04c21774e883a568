"""The hub protocol of pub0sub: publishers receive the number of subscribers of a message."""
