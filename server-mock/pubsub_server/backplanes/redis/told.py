"""Changes of presence on a channel, and what the store says of members, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pubsub_server.shared.roster import Told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MARK: Final = b"p"
"""What a payload of presence begins with; one of messages begins with a digit."""

_CHANGES: Final[dict[bytes, Literal["join", "leave", "update", "move"]]] = {
    b"pj": "join",
    b"pl": "leave",
    b"pu": "update",
    b"pm": "move",
}


def read_told(payload: bytes) -> Iterator[Told]:
    """The changes of one payload of a channel.

    Raises:
        ValueError: It is not one that the scripts make.
    """
    at = 0
    while at < len(payload):
        end = payload.index(b"\n", at)
        kind, *numbers = payload[at:end].split(b" ")
        change = _CHANGES.get(kind)
        if change is None:
            raise ValueError(f"there is no change {kind!r}")
        time, *sizes = map(int, numbers)
        parts: list[bytes] = []
        at = end + 1
        for size in sizes:
            parts.append(payload[at : at + size])
            at += size
        if at > len(payload):
            raise ValueError("a change is cut off")
        topic, client_id, id, shown = parts
        yield Told(change, topic.decode(), client_id.decode(), id.decode(), time, shown)


def read_members(row: Sequence[bytes], node: str) -> dict[str, tuple[bool, bytes]]:
    """One topic of an answer of `present.lua`."""
    members: dict[str, tuple[bool, bytes]] = {}
    for client_id, held in zip(row[::2], row[1::2], strict=True):
        owner, _, shown = held.partition(b" ")
        members[client_id.decode()] = (owner == node.encode(), shown)
    return members
