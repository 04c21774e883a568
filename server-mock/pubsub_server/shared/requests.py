"""Requests of clients, decoded by `codec` from frames and bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pubsub_server.errors import ServiceError

Ref: TypeAlias = str | None


# Types created per message are structs, which takes half the time of a dataclass.


class Draft(msgspec.Struct, gc=False):
    """A validated publication, with its payload encoded as JSON."""

    topic: str
    type: str
    data: bytes
    ttl: int | None
    id: str | None
    meta: bytes | None


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """`auth`: H-041, H-153."""

    token: str
    client_id: str | None
    ref: Ref

    def __repr__(self) -> str:
        return "AuthRequest(...)"


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """`subscribe`: valid patterns in the given order, each once; errors of the others.

    Attributes:
        resumed: Unix ms up to which an earlier event stream has delivered everything; None if the
            request does not resume a stream.
        moved: Whether that stream was on another node, whose positions are not valid here.
        followed: Whether more subscriptions of the same event stream follow. Messages wait for the
            last answer, and only this answer has an event id: a reader that resumes after an event
            has all answers.
    """

    topics: Sequence[str]
    since: int | None = None
    after: Mapping[str, int] | None = None
    history: int | None = None
    presence: bool | None = None
    ref: Ref = None
    invalid: Sequence[ServiceError] = ()
    resumed: int | None = None
    moved: bool = False
    followed: bool = False


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """`unsubscribe`: patterns as they were subscribed."""

    topics: Sequence[str]
    ref: Ref = None


class PublishRequest(msgspec.Struct):
    """`publish`: one item, or a batch with an answer for each."""

    items: Sequence[Draft | ServiceError]
    batch: bool
    ref: Ref


@dataclass(frozen=True, slots=True)
class PresenceRequest:
    """`presence.update`: on one topic, or on all where the connection is a member."""

    topic: str | None
    data: Mapping[str, Any]
    ref: Ref


@dataclass(frozen=True, slots=True)
class PingRequest:
    """`ping`."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class PositionsRequest:
    """`POST /v1/positions`: valid topics and patterns, each once.

    Attributes:
        topics: Which.
        after: Positions that the caller knows.
        at: Unix ms; also asks for the positions of that time.
        wait: Milliseconds the answer may be held.
    """

    topics: Sequence[str]
    after: Mapping[str, int]
    at: int | None = None
    wait: int = 0


Request: TypeAlias = (
    AuthRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | PublishRequest
    | PresenceRequest
    | PingRequest
)
