"""The blocking clients: an event loop in a thread, and the objects of programs without asyncio."""
