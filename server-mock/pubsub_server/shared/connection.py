"""One connection: who it is, what it holds, and the bytes that wait for it.

An idle one owns no task, no queue and no buffer: every field that may be empty is None then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Iterator

    from pubsub_server.interfaces import Identity, Sink
    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.requests import SubscribeRequest

PAUSED: Final = 1
"""The transport holds too much."""
REPLAYING: Final = 2
"""What was asked for of history goes first."""
FROZEN: Final = 4
"""A fault holds everything back."""

_FEW: Final = 8
NEVER: Final = float("inf")


class Keeper(Protocol):
    """Looks after connections when their time comes."""

    def check(self, connection: Connection, now: float) -> float | None:
        """See `wheel.Waiting.due`."""
        ...


class Connection:
    """State of one connection; only the hub and its parts change it.

    Attributes:
        sink: The listener's side.
        encoder: Its wire format.
        identity: Who it is; None before authentication.
        client_id: Identifies it; kept over a resume.
        patterns: What it is subscribed to.
        wild: How many of them have a wildcard.
        silent: Those of its patterns whose presence it did not ask for.
        pending: Wire bytes that leave with this loop turn, or when it is no longer stalled.
        stalled: Why nothing is written: `PAUSED`, `REPLAYING`, `FROZEN`, or 0.
        held: Bytes in ``pending`` while it is stalled.
        backlog: Frames of history, made when there is room.
        busy: What it asked for takes several turns of the loop; what it asks next waits.
        waiting: Inbound frames that came meanwhile, or while the first ``auth`` was being checked.
        room: Done when its backlog is sent.
        verdicts: Whether it may read a topic, for patterns; dropped when it authenticates again.
        last_heard: When a byte came last, monotonic seconds.
        last_spoke: When its program sent a frame last; a socket answers pings without it.
        since: When it was authenticated first, Unix ms; 0 before.
        deadline: When it must be authenticated, and then when its token ends.
        notice_at: When to announce the end of its token; `NEVER` once announced, or without an end.
        next_check: Its place in the wheel.
    """

    __slots__ = (
        "authenticating",
        "backlog",
        "bad_frames",
        "busy",
        "client_id",
        "closed",
        "deadline",
        "encoder",
        "held",
        "identity",
        "keeper",
        "last_heard",
        "last_spoke",
        "next_check",
        "notice_at",
        "patterns",
        "pending",
        "room",
        "silent",
        "since",
        "sink",
        "stalled",
        "verdicts",
        "waiting",
        "wild",
    )

    def __init__(self, sink: Sink, encoder: Encoder, keeper: Keeper, now: float) -> None:
        self.sink = sink
        self.encoder = encoder
        self.keeper = keeper
        self.identity: Identity | None = None
        self.client_id = ""
        self.patterns: tuple[str, ...] | dict[str, None] = ()
        self.silent: set[str] | None = None
        self.wild = 0
        self.pending: list[bytes] | None = None
        self.stalled = 0
        self.held = 0
        self.backlog: deque[Iterator[bytes]] | None = None
        self.waiting: deque[str | bytes | SubscribeRequest] | None = None
        self.room: asyncio.Future[None] | None = None
        self.verdicts: dict[str, bool] | None = None
        self.authenticating = False
        self.busy = False
        self.closed = False
        self.notice_at = NEVER
        self.bad_frames = 0
        self.last_heard = now
        self.last_spoke = now
        self.since = 0
        self.deadline = NEVER
        self.next_check = NEVER

    def __repr__(self) -> str:
        return f"<Connection {self.client_id or 'unauthenticated'} {self.encoder.name}>"

    def due(self, now: float) -> float | None:
        """See `wheel.Waiting`."""
        return self.keeper.check(self, now)


def with_name(names: tuple[str, ...] | dict[str, None], name: str) -> Any:
    """The collection with one name more: a tuple while they are few."""
    if isinstance(names, dict):
        names[name] = None
        return names
    if len(names) < _FEW:
        return (*names, name)
    return dict.fromkeys((*names, name))


def without_name(names: tuple[str, ...] | dict[str, None], name: str) -> Any:
    """The collection with one name less."""
    if isinstance(names, dict):
        names.pop(name, None)
        return names if len(names) >= _FEW else tuple(names)
    return tuple(other for other in names if other != name)


def about(connection: Connection) -> dict[str, str]:
    """What a log line about a connection carries beside its text."""
    return {"client_id": connection.client_id}
