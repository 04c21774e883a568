"""Splits bytes at arbitrary positions, and feeds them to a decoder."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

from hypothesis import strategies as st

from hanzoai.pubsub.links.unparsed import FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Decoder(Protocol[T_co]):
    @property
    def pending(self) -> int: ...

    def feed(self, data: bytes) -> None: ...

    def decode(self, limit: int = -1) -> Sequence[T_co]: ...


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Split `data` at the positions in `cuts`, modulo its length."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 1 << 16), max_size=12)


def decode(decoder: Decoder[T], parts: Sequence[bytes], limit: int = -1) -> list[T]:
    """Return the output of a decoder that is fed piece by piece."""
    found: list[T] = []
    for part in parts:
        decoder.feed(part)
        while some := decoder.decode(limit):
            found += some
            if limit < 0:
                break
    return found


def reason_or_all(decoder: Decoder[T], parts: Sequence[bytes]) -> str | list[T]:
    """Return the reason of the error that the pieces cause, or the output of the decoder."""
    try:
        return decode(decoder, parts)
    except FrameError as error:
        return error.reason
