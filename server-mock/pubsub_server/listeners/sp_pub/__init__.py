"""SP publishing, as in NNG: every subscriber gets every topic and filters by prefix."""
