"""The state of one connection: identity, subscriptions, and waiting bytes.

An idle connection has no task, queue or buffer: fields that can be empty are then None.
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
"""The transport has too many unsent bytes."""
REPLAYING: Final = 2
"""Requested history is sent first."""
FROZEN: Final = 4
"""A fault stops all writes."""
ANSWERING: Final = 8
"""The answers to further subscriptions of an event stream are sent first."""
AWAITING: Final = REPLAYING | ANSWERING
"""Reasons to hold messages, but not what they wait for."""

_FEW: Final = 8
NEVER: Final = float("inf")


class Keeper(Protocol):
    """Checks connections at their deadlines."""

    def check(self, connection: Connection, now: float) -> float | None:
        """See `wheel.Waiting.due`."""
        ...


class Connection:
    """State of one connection; only the hub and its parts change it.

    Attributes:
        sink: The listener's side.
        encoder: Its wire format.
        identity: Its identity; None before authentication.
        client_id: Its id; kept when it resumes.
        patterns: Its topics and patterns.
        wild: Number of patterns with a wildcard.
        silent: Patterns without presence.
        pending: Bytes to write at the end of this loop turn, or when it is no longer stalled.
        stalled: Reasons not to write: `PAUSED`, `REPLAYING`, `FROZEN`, `ANSWERING`, or 0.
        held: Bytes in ``pending`` while it is stalled.
        backlog: Frames of history, created when there is room.
        busy: A request takes several turns of the loop; the next ones wait.
        waiting: Inbound frames received in the meantime, or during the check of the first ``auth``.
        room: A future that is done when its backlog is sent.
        verdicts: Cached permissions to read topics of patterns; dropped at reauthentication.
        last_received: Time of the last received byte, monotonic seconds.
        last_spoke: Time of the last frame from its program; pongs do not count.
        since: Time of the first authentication, Unix ms; 0 before.
        steady_since: The same time by the steady clock of the roster, ms; 0 without one.
        deadline: Deadline of the authentication, then expiry of the token.
        notice_at: When to announce the expiry; `NEVER` once announced, or without an expiry.
        next_check: Its time in the wheel.
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
        "last_received",
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
        "steady_since",
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
        self.last_received = now
        self.last_spoke = now
        self.since = 0
        self.steady_since = 0
        self.deadline = NEVER
        self.next_check = NEVER

    def __repr__(self) -> str:
        return f"<Connection {self.client_id or 'unauthenticated'} {self.encoder.name}>"

    def due(self, now: float) -> float | None:
        """See `wheel.Waiting`."""
        return self.keeper.check(self, now)


def with_name(names: tuple[str, ...] | dict[str, None], name: str) -> Any:
    """The collection with a name added: a tuple while there are few."""
    if isinstance(names, dict):
        names[name] = None
        return names
    if len(names) < _FEW:
        return (*names, name)
    return dict.fromkeys((*names, name))


def without_name(names: tuple[str, ...] | dict[str, None], name: str) -> Any:
    """The collection with a name removed."""
    if isinstance(names, dict):
        names.pop(name, None)
        return names if len(names) >= _FEW else tuple(names)
    return tuple(other for other in names if other != name)


def about(connection: Connection) -> dict[str, str]:
    """The fields of a log line about a connection."""
    return {"client_id": connection.client_id}
