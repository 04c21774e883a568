"""What a program gets from the client: messages, gaps, presence, state changes, publish results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NotRequired,
    Protocol,
    TypeAlias,
    TypedDict,
)

from pydantic import BaseModel

from hanzoai.pubsub.durations import Duration
from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.generated.wire import (
    Denial,
    Limits,
    Message,
    Occupancy,
    PositionList,
    PresenceMember,
    Publication,
    Sender,
    TopicInfo,
    TopicPosition,
)
from hanzoai.pubsub.model import Data

if TYPE_CHECKING:
    from collections.abc import Iterable


Since: TypeAlias = int | datetime | timedelta
"""A time: Unix milliseconds, an aware datetime, or a timedelta before now, with either sign."""

Ttl: TypeAlias = int | timedelta
"""How long a message is kept: whole seconds, or a timedelta; 0 stores nothing."""

Topics: TypeAlias = str | Sequence[str]
"""One pattern or several."""


Types: TypeAlias = str | Sequence[str] | AbstractSet[str]
"""One message type or several."""


class DataclassObject(Protocol):
    """An object of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class StructObject(Protocol):
    """An object of any msgspec struct."""

    __struct_fields__: ClassVar[tuple[str, ...]]


Outgoing: TypeAlias = Mapping[str, Any] | Publication | BaseModel | DataclassObject | StructObject
"""What is published: ``{"type": ..., "data": ...}`` with optional ``ttl``, ``id``, ``meta``; or the
payload alone, as an object of a pydantic model, a dataclass or a msgspec struct."""


class OutgoingOf(TypedDict, Generic[Data]):
    """What is published to a topic with a model: ``data`` is an object of the model."""

    data: Data
    type: NotRequired[str]
    ttl: NotRequired[Ttl | None]
    id: NotRequired[str | None]
    meta: NotRequired[dict[str, Any] | None]


OnInvalid: TypeAlias = Literal["raise", "skip", "raw"]
"""What happens to a message whose payload does not match the model of its topic."""

Via: TypeAlias = Literal["auto", "socket", "rest"]
"""How an operation travels: over the open connection, over HTTP, or whichever fits."""

StateName: TypeAlias = Literal[
    "initialized",
    "connecting",
    "authenticating",
    "connected",
    "reconnecting",
    "suspended",
    "closing",
    "closed",
    "failed",
]
"""The states of a client (docs/lifecycle.md)."""

TokenReason: TypeAlias = Literal["connect", "expiring", "rejected"]
"""Why the client calls ``get_token``."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and, if known, its expiry.

    Attributes:
        value: The bearer token or API key, with or without ``Bearer ``. Not shown in ``repr``.
        expires_at: Expiry: Unix seconds, as in the ``exp`` claim, or an aware datetime; None if
            unknown.

    Raises:
        InvalidOption: ``expires_at`` is in milliseconds, or a datetime without a time zone.
    """

    value: str = field(repr=False)
    expires_at: float | datetime | None = None

    def __post_init__(self) -> None:
        if self.expires_at is not None:
            _check_expiry(self.expires_at)

    @property
    def expires_ms(self) -> int | None:
        """``expires_at`` in Unix milliseconds."""
        end = self.expires_at
        if end is None:
            return None
        return round((end.timestamp() if isinstance(end, datetime) else end) * 1000)


_LATEST: Final = 10**11
"""Unix seconds of the year 5138: a larger number counts milliseconds."""


def _check_expiry(end: object) -> None:
    """Reject a value that is not a time in seconds.

    Raises:
        InvalidOption: The value is not valid.
    """
    if isinstance(end, datetime):
        if end.tzinfo is not None:
            return
        problem, remedy = "is a datetime without a time zone", "Use datetime.now(UTC) + lifetime."
    elif isinstance(end, bool) or not isinstance(end, int | float):
        problem, remedy = f"is {type(end).__name__}", "Pass Unix seconds or an aware datetime."
    elif 0 <= end < _LATEST:
        return
    elif end >= _LATEST:
        problem, remedy = "is in milliseconds", "Pass seconds: divide it by 1000."
    else:
        problem, remedy = "is not a time", "Pass Unix seconds or an aware datetime."
    raise InvalidOption(f"`expires_at` {problem}.", field="expires_at", remedy=remedy)


@dataclass(frozen=True, slots=True)
class TokenContext:
    """Why ``get_token`` is called.

    Attributes:
        reason: ``connect`` before a connection, ``expiring`` when the current token expires soon,
            ``rejected`` when the server rejected the last one.
        attempt: 0 for the first call with this reason, then 1, 2 and so on.
    """

    reason: TokenReason
    attempt: int


TokenCallback: TypeAlias = Callable[[TokenContext], str | Token | Awaitable[str | Token]]
"""``get_token``: a function or a coroutine function; raises AuthRefused to stop permanently."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the state of a client (LIFE-1).

    Attributes:
        from_: State before.
        to: State after.
        code: Error code of ``spec/errors.yaml``, or the close code: 1006 for a connection that was
            lost or could not be opened. None if the change has a cause other than a failure.
        reason: What happened, for logs: a sentence in English, of this client, the server or a
            proxy. Empty if nothing failed, as after ``close()``, or when a client connects again
            after the machine slept. For users, choose words by ``to`` and ``code``.
        retry_in: Seconds until the next attempt, if one is planned.
        attempt: Number of attempts since the client was last stable.
    """

    from_: StateName
    to: StateName
    code: str | int | None = None
    reason: str = ""
    retry_in: float | None = None
    attempt: int = 0


PresenceChangeKind: TypeAlias = Literal[
    "snapshot", "join", "connect", "update", "disconnect", "leave"
]
"""What happened to the members of a topic: `snapshot` for the first complete list."""


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """Who is present on a topic after a change.

    Attributes:
        topic: The topic.
        members: All connections that are present now, in the order in which they joined.
            Connections that joined within the same millisecond are sorted by ``client_id``.
            ``users_of`` lists each user once.
        change: ``snapshot`` for the first complete list, then what ``member`` did: ``join`` and
            ``leave`` for the first and last connection of a user, ``connect`` and ``disconnect``
            for further connections, ``update`` for changed data.
        member: The connection that joined, was updated or left; None for ``snapshot``.
    """

    topic: str
    members: tuple[PresenceMember, ...]
    change: PresenceChangeKind
    member: PresenceMember | None = None

    @property
    def occupancy(self) -> Occupancy:
        """The current number of members and users."""
        return occupancy_of(self.members)


def occupancy_of(members: Sequence[PresenceMember]) -> Occupancy:
    """Return the number of members, and of their users.

    Args:
        members: Of a `PresenceChange`, or what ``presence()`` returns.
    """
    return Occupancy(members=len(members), users=len(users_of(members)))


def users_of(members: Iterable[PresenceMember]) -> list[PresenceMember]:
    """Return each user once, in the order of ``members``.

    Args:
        members: Of a `PresenceChange`, or what ``presence()`` returns.

    Returns:
        The first member of each user: the connection that joined first.
    """
    users: dict[str, PresenceMember] = {}
    for member in members:
        users.setdefault(member.user_id or member.client_id, member)
    return list(users.values())


@dataclass(frozen=True, slots=True)
class Published:
    """A publish that the server accepted.

    Attributes:
        id: Id of the message.
        timestamp: Server time, Unix milliseconds; None if the server sends no acknowledgements.
        seq: Position in the log of its topic; None for ephemeral messages and plain HIP-56.
        duplicate: Whether the id was already published; the server then did not publish it again.
    """

    id: str
    timestamp: int | None = None
    seq: int | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """Counters of the messages of one subscription (FLOW-1).

    ``received == handled + dropped + queued`` holds at any time.

    Attributes:
        received: Messages that have arrived for this subscription.
        handled: Messages that the program has taken.
        dropped: Messages dropped because the queue was full, or the subscription ended.
        queued: Messages waiting.
        queued_bytes: Their approximate size.
        gaps: Gaps reported, for any reason.
    """

    received: int
    handled: int
    dropped: int
    queued: int
    queued_bytes: int
    gaps: int


Before: TypeAlias = Message | Published | int | str
"""Where history ends: a message, what ``publish`` returned, a position, or an id."""

Event: TypeAlias = Message[Data] | Gap | PresenceChange
"""What ``Subscription.events()`` yields, in order."""

__all__ = [
    "Before",
    "Denial",
    "Duration",
    "Event",
    "Gap",
    "Limits",
    "Message",
    "Occupancy",
    "OnInvalid",
    "Outgoing",
    "OutgoingOf",
    "PositionList",
    "PresenceChange",
    "PresenceMember",
    "Publication",
    "Published",
    "Sender",
    "Since",
    "StateChange",
    "StateName",
    "SubscriptionStats",
    "Token",
    "TokenCallback",
    "TokenContext",
    "TokenReason",
    "TopicInfo",
    "TopicPosition",
    "Topics",
    "Ttl",
    "Types",
    "Via",
    "occupancy_of",
    "users_of",
]
