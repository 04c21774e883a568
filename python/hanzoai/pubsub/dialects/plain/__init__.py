"""The dialect of servers that implement little more than HIP-56."""
