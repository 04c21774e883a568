"""Message ids: `msg_` and a ULID, monotonic within a process.

48 bits of Unix milliseconds and 80 random bits in Crockford's base 32. Within one millisecond, or
while the clock stands or goes back, the random part counts up, so ids of one process sort in the
order of their making. HIP-56 recommends this form; nothing here or on a server relies on the order.
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
_HIGH_SHIFTS: Final = tuple(range(100, -10, -10))
_LOW_BITS: Final = 20
_RANDOM_BITS: Final = 80
_RANDOM_BYTES: Final = _RANDOM_BITS // 8
_VALUE_MAX: Final = (1 << 128) - 1


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class IdMaker:
    """Makes ids; safe to call from any number of threads.

    Args:
        wall_ms: Unix time in milliseconds.
        random: Gives so many random bytes.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int] = _system_ms,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._wall_ms = wall_ms
        self._random = random
        self._lock = threading.Lock()
        self._last = 0
        # What counting up leaves as it is: its text is made once.
        self._high = -1
        self._head = ""

    def ulid(self) -> str:
        """26 characters, greater than all that came before from this maker."""
        fresh = self._wall_ms() << _RANDOM_BITS
        with self._lock:
            if fresh >> _RANDOM_BITS > self._last >> _RANDOM_BITS:
                self._last = fresh | int.from_bytes(self._random(_RANDOM_BYTES), "big")
            else:
                self._last = min(self._last + 1, _VALUE_MAX)
            value = self._last
            high = value >> _LOW_BITS
            if high != self._high:
                self._high = high
                self._head = "".join([_PAIRS[high >> shift & 1023] for shift in _HIGH_SHIFTS])
            head = self._head
        return head + _PAIRS[value >> 10 & 1023] + _PAIRS[value & 1023]

    def message_id(self) -> str:
        """A fresh message id, `msg_` and a ULID."""
        return f"msg_{self.ulid()}"


_maker = IdMaker()


def message_id() -> str:
    """A fresh message id, `msg_` and a ULID; safe to call from any thread."""
    return _maker.message_id()


def _renew() -> None:
    # A forked process would otherwise go on counting from its parent's last id and repeat its ids.
    global _maker
    _maker = IdMaker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
