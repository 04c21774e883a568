"""What a run writes down: publications, what each subscription heard, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["acknowledged", "refused", "unknown"]


@dataclass(slots=True)
class Publication:
    """One call of publish.

    Attributes:
        id: The id that the publisher gave.
        topic: Where to.
        by: The client.
        user: The user of its token.
        order: Place of the call among those of this client, from 0.
        data: The payload.
        begun: When the call began, seconds of the run.
        allowed: Whether the access rules let this user publish there.
        final: Whether it was made after the faults had stopped.
        ended: When its outcome was known.
        outcome: What became of it; None while nothing is known.
        seq: The position that the acknowledgement named.
        code: Of the error that refused it.
    """

    id: str
    topic: str
    by: str
    user: str
    order: int
    data: Any
    begun: float
    allowed: bool = True
    final: bool = False
    ended: float | None = None
    outcome: Outcome | None = None
    seq: int | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message as one subscription heard it."""

    at: float
    topic: str
    id: str
    seq: int | None
    sender: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap as one subscription was told of it.

    Attributes:
        at: When, seconds of the run.
        topic: The concrete topic.
        first: Position of the first missing message; None where it is unknown.
        last: Position of the last missing message; None where it is unknown.
        missed: How many are missing; None where it is unknown.
        reason: `history_trimmed`, `log_reset`, `node_changed`, `slow_consumer` or `unproven`.
    """

    at: float
    topic: str
    first: int | None
    last: int | None
    missed: int | None
    reason: str


@dataclass(slots=True)
class Subscription:
    """One subscription and all that it heard.

    Attributes:
        client: Its client.
        patterns: What it asked for.
        readable: Patterns that the access rules let its user read.
        asked: When it was asked for, seconds of the run.
        began: When its acknowledgement was seen; None before.
        heard: Messages and gaps, in the order in which they came.
        ended: Why it ended although nobody ended it.
        members: The newest list of members by topic, user ids; where it watches presence.
    """

    client: str
    patterns: tuple[str, ...]
    readable: tuple[str, ...]
    asked: float
    began: float | None = None
    heard: list[Message | Gap] = field(default_factory=list[Message | Gap])
    ended: str | None = None
    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


@dataclass(frozen=True, slots=True)
class Loss:
    """The store lost its data at some time within these bounds."""

    begun: float
    ended: float


@dataclass(slots=True)
class Client:
    """How a client ended.

    Attributes:
        name: Of the plan.
        transport: The one that it should be connected by at the end.
        state: `connected`, or what it is instead.
        found: The transport that it is connected by.
        failure: Why it gave up for good; None where it did not.
    """

    name: str
    transport: str
    state: str = "initialized"
    found: str | None = None
    failure: str | None = None


@dataclass(slots=True)
class History:
    """Everything that the checker judges.

    Attributes:
        retained: Messages that the server retains a topic.
        publications: By id.
        subscriptions: All of them.
        losses: When the store lost its data.
        clients: All of them.
        members: Users that are members of a topic at the end.
        present: Users that a node names as present, by node and topic.
    """

    retained: int = 100
    publications: dict[str, Publication] = field(default_factory=dict[str, Publication])
    subscriptions: list[Subscription] = field(default_factory=list[Subscription])
    losses: list[Loss] = field(default_factory=list[Loss])
    clients: list[Client] = field(default_factory=list[Client])
    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    present: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
