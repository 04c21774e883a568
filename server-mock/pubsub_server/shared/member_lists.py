"""Encodes the members of a topic within the size that clients receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Members = Sequence[Mapping[str, object]]

MEMBERS_BYTES: Final = 16_777_216
"""Maximum bytes of a list with metadata: half of the largest frame that the SDKs receive."""


def encode_members(encode: Callable[[Members], bytes], members: Members) -> bytes:
    """Encode a list of members; if it is too large for clients, without their metadata.

    A client closes a connection with a frame above its limit, and would receive it again on the
    next one.

    Args:
        encode: Encodes the list.
        members: In wire format.
    """
    data = encode(members)
    if len(data) <= MEMBERS_BYTES:
        return data
    return encode([{k: v for k, v in each.items() if k != "metadata"} for each in members])


def too_large(sizes: Iterable[int]) -> bool:
    """Whether parts of a list with these bytes show that it is too large, before it is encoded."""
    return sum(sizes) > MEMBERS_BYTES
