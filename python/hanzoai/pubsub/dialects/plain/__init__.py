"""The dialect of servers that know HIP-56 and little more."""
