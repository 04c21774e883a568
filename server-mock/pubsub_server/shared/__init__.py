"""Code that listeners, the hub and backplanes share; it imports none of them."""
