"""The random generator of a simulation: mulberry32, with 32-bit integers only.

The same seed gives the same numbers in every language:

    state = (state + 0x6D2B79F5) mod 2^32
    t = (state ^ state >> 15) * (state | 1) mod 2^32
    t = t ^ (t + (t ^ t >> 7) * (t | 61)) mod 2^32
    number = t ^ t >> 14
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
_MASK = 0xFFFFFFFF


class Random:
    """Numbers from a seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def u32(self) -> int:
        """0 to 2^32 - 1."""
        self._state = (self._state + 0x6D2B79F5) & _MASK
        s = self._state
        t = ((s ^ (s >> 15)) * (s | 1)) & _MASK
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & _MASK)) & _MASK
        return t ^ (t >> 14)

    def below(self, n: int) -> int:
        """0 to n - 1; n is less than 2^20."""
        return (self.u32() * n) >> 32

    def between(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, thousandths: int) -> bool:
        """Return True with this probability, in thousandths."""
        return self.below(1000) < thousandths

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.below(len(values))]

    def unit(self) -> float:
        """From 0 inclusive to 1 exclusive; exact in a double."""
        return self.u32() / 4294967296
