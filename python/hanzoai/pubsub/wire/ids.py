"""Message ids: `msg_` and a ULID, monotonic within a process.

48 bits of Unix milliseconds and 80 random bits in Crockford's base 32. Within one millisecond, or
while the clock stops or goes back, the random part counts up, so ids of one process sort by
creation. HIP-56 recommends this form; no client and no server relies on the order.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_LOW_BITS: Final = 20
_LOW_MAX: Final = (1 << _LOW_BITS) - 1
_HIGH_MAX: Final = (1 << 128 - _LOW_BITS) - 1
_HIGH_SHIFTS: Final = tuple(range(100, -1, -10))
_RANDOM_BITS: Final = 80
_RANDOM_BYTES: Final = _RANDOM_BITS // 8


class IdMaker:
    """Creates ids; safe to call from any number of threads.

    Args:
        wall_ns: Unix time in nanoseconds.
        random: Returns the given number of random bytes.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._wall_ns = wall_ns
        self._random = random
        self._lock = threading.Lock()
        self._time = -1
        # The last 20 bits count up; the text of the other bits is created once.
        self._low = 0
        self._high = 0
        self._head = ""

    def message_id(self) -> str:
        """Return a new message id: `msg_` and a ULID greater than all earlier ones."""
        now = self._wall_ns() // 1_000_000
        with self._lock:
            if now > self._time:
                self._time = now
                value = now << _RANDOM_BITS | int.from_bytes(self._random(_RANDOM_BYTES), "big")
                self._begin(value >> _LOW_BITS, value & _LOW_MAX)
            elif self._low < _LOW_MAX:
                self._low += 1
            elif self._high < _HIGH_MAX:
                self._begin(self._high + 1, 0)
                self._time = self._high >> _RANDOM_BITS - _LOW_BITS
            low = self._low
            head = self._head
        return head + _PAIRS[low >> 10] + _PAIRS[low & 1023]

    def renew(self) -> None:
        """Start from other random bits: a forked process must not repeat its parent's ids."""
        self._lock = threading.Lock()
        self._time = -1

    def ulid(self) -> str:
        """Return a new message id without `msg_`, 26 characters."""
        return self.message_id().removeprefix("msg_")

    def _begin(self, high: int, low: int) -> None:
        self._high = high
        self._low = low
        self._head = "msg_" + "".join([_PAIRS[high >> shift & 1023] for shift in _HIGH_SHIFTS])


_maker = IdMaker()
message_id: Final = _maker.message_id
"""Return a new message id: `msg_` and a ULID. Safe to call from any thread."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_maker.renew)
