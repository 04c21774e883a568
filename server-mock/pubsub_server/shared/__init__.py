"""What listeners, the hub and backplanes share; it knows none of them."""
