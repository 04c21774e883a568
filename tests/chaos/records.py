"""The records of a run: publishes, the events of each subscription, and the final state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

Outcome: TypeAlias = Literal["acknowledged", "refused", "unknown"]


@dataclass(slots=True)
class Publication:
    """One call of publish.

    Attributes:
        id: The id that the publisher chose.
        topic: The topic.
        by: The client.
        user: The user of its token.
        order: Index of the call among the calls of this client, from 0.
        data: The payload.
        begun: Start of the call, in seconds of the run.
        allowed: Whether the access rules allow this user to publish to the topic.
        final: Whether the call was made after the faults had stopped.
        ended: When the outcome was known.
        outcome: The outcome; None while it is unknown.
        seq: The position in the acknowledgement.
        code: Code of the error that rejected the publish.
        node: Index of the node that it was sent to.
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
    node: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message that one subscription received."""

    at: float
    topic: str
    id: str
    seq: int | None
    sender: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap that was reported to one subscription.

    Attributes:
        at: Time in seconds of the run.
        topic: The concrete topic.
        first: Position of the first missing message; None if it is unknown.
        last: Position of the last missing message; None if it is unknown.
        missed: Number of missing messages; None if it is unknown.
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
    """One subscription and all events that it received.

    Attributes:
        client: The client.
        patterns: The requested patterns.
        readable: Patterns that the access rules allow its user to read.
        asked: Time of the request, in seconds of the run.
        began: Time of the acknowledgement; None before.
        received: Messages and gaps, in the order of arrival.
        ended: Reason for which it ended although the client did not end it.
        members: Latest user ids of the members by topic, if it watches presence.
        past: Whether it requested messages from before it.
        left: When the client ended it; None while it lasts.
    """

    client: str
    patterns: tuple[str, ...]
    readable: tuple[str, ...]
    asked: float
    began: float | None = None
    received: list[Message | Gap] = field(default_factory=list[Message | Gap])
    ended: str | None = None
    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    past: bool = False
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of the store's data, at some time within these bounds."""

    begun: float
    ended: float


@dataclass(slots=True)
class Client:
    """The final state of a client.

    Attributes:
        name: Name in the plan.
        transport: The transport that it should use at the end.
        state: `connected`, or its other state.
        found: The transport that it uses.
        failure: Reason for which it gave up permanently; None if it did not.
    """

    name: str
    transport: str
    state: str = "initialized"
    found: str | None = None
    failure: str | None = None


@dataclass(slots=True)
class History:
    """Everything that the checker checks.

    Attributes:
        retained: Messages that the server retains per topic.
        publications: The publishes by id.
        subscriptions: All subscriptions.
        losses: The times at which the store lost its data.
        clients: All clients.
        members: Users that should be members of each topic at the end.
        present: Users that each node reports as present, by node and topic.
        node: Index of the node of all clients and positions; None for all nodes.
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
    node: int | None = None

    def of_node(self, node: int, names: Collection[str]) -> History:
        """The part of a node that has its own positions and members, like the nodes of a mesh.

        Args:
            node: Index of the node.
            names: Its clients.
        """
        return replace(
            self,
            publications={
                id: one if one.node == node else replace(one, seq=None)
                for id, one in self.publications.items()
            },
            subscriptions=[one for one in self.subscriptions if one.client in names],
            clients=[one for one in self.clients if one.name in names],
            members={
                topic: [one for one in found if one in names]
                for topic, found in self.members.items()
            },
            present={key: found for key, found in self.present.items() if key[0] == f"node{node}"},
            node=node,
        )
