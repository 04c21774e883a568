"""The interface between the hub and the presence that several nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Sequence

    from pubsub_server.shared.client_ids import ClientIds

Change = Literal["join", "leave", "update"]


Row = Mapping[str, tuple[bool, bytes]]
"""Members of a topic by client id: whether this node holds the member, and what it shows."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A change of a topic's members, as each node that listens to the topic receives it.

    Attributes:
        change: `move`: the client is on another node from now on, and no one else notices.
        topic: Where.
        client_id: Who.
        id: Of the change; empty where it needs none.
        at: Unix µs; what was read at a later time has the change already.
        shown: What the member shows, JSON; the node's name for `move`.
    """

    change: Literal["join", "leave", "update", "move"]
    topic: str
    client_id: str
    id: str
    at: int
    shown: bytes


@dataclass(frozen=True, slots=True)
class Present:
    """Who is on some topics.

    Attributes:
        at: By topic, Unix µs of the server that stores it: every change before that is in it.
        members: By topic.
    """

    at: Mapping[str, int]
    members: Mapping[str, Row]


class Audience(Protocol):
    """The hub's side."""

    def received(self, change: MemberChange) -> None:
        """A member of a topic that this node listens to has changed."""
        ...

    def recorded(self, change: Change, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """A change of this node is in the store; called once on all nodes together."""
        ...

    def restored(self, topic: str, client_id: str, shown: bytes) -> None:
        """The client that joined was a member before, and shows this."""
        ...

    def refused(self, topic: str, client_id: str) -> None:
        """The topic has as many members as it may."""
        ...

    def overruled(self, topic: str, client_id: str) -> None:
        """The member belongs to another node by now."""
        ...

    def everybody(self) -> Iterable[tuple[str, str, bytes]]:
        """Topic, client id and what it shows, of all members that this node holds."""
        ...

    def connected(self, client_id: str) -> bool:
        """Whether the client has a connection to this node."""
        ...

    def interrupted(self) -> None:
        """Later changes may come from another server, whose clock may be behind the former one."""
        ...

    def missed(self, topics: Iterable[str], *, anything: bool) -> None:
        """Changes on these topics may not have come; with ``anything`` on all others too."""
        ...


class Roster(Protocol):
    """Members of all nodes.

    Changes are taken at once, in order, and are final when the store has them. While the store is
    unreachable they wait.

    Attributes:
        ids: Client ids that all nodes recognize.
    """

    ids: ClientIds

    def attend(self, audience: Audience) -> None:
        """Report this from now on."""
        ...

    def steady(self) -> int:
        """Milliseconds of a clock that no operator and no NTP sets."""
        ...

    def store_time(self, steady: int) -> tuple[int, int]:
        """The earliest and latest time of the store, Unix ms, when `steady` was this.

        The clocks of nodes differ, so connections at several nodes are compared by this time.
        """
        ...

    def join(self, topic: str, client_id: str, shown: bytes) -> Future[None]:
        """A client of this node becomes a member, or stays one that was on another node."""
        ...

    def update(self, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """A member shows something else."""
        ...

    def leave(self, topic: str, client_id: str) -> None:
        """A client of this node is a member no more, unless another node has it by now."""
        ...

    async def room(self, topics: Iterable[str]) -> None:
        """Wait until few changes of these topics wait for the store; callers take turns.

        Call it before many changes, so that one client cannot make all others wait.

        Raises:
            ServiceError: `unavailable`: the store is unavailable or too slow.
        """
        ...

    async def wait_joined(self, joins: Sequence[Future[None]], patterns: Sequence[str]) -> None:
        """Wait until these joins are recorded and the changes of these patterns arrive.

        Raises:
            ServiceError: `unavailable`: the store is unavailable or too slow.
        """
        ...

    async def read(self, topics: Sequence[str]) -> Present:
        """Who is on these topics. Those that the store cannot read now are missing.

        Raises:
            ServiceError: `unavailable`: it can read none of them.
        """
        ...

    async def matching(self, wanted: Callable[[str], bool], limit: int) -> list[str]:
        """Topics with a member.

        Raises:
            ServiceError: `unavailable`.
        """
        ...

    async def elsewhere(self, topic: str, client_id: str) -> bool:
        """Whether another node has this member.

        Raises:
            ServiceError: `unavailable`.
        """
        ...
