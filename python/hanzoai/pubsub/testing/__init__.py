"""What a program needs to test its use of Hanzo PubSub: a server in memory, a clock to move, faults."""

from __future__ import annotations

from .clock import VirtualClock
from .server import MemoryServer

__all__ = ["MemoryServer", "VirtualClock"]
