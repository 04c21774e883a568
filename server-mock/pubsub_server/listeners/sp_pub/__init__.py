"""SP publishing, as NNG has it: every topic to every subscriber, which filters by prefix."""
