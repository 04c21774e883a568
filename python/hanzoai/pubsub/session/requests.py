"""Requests of the user to a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.wire import Publication
    from hanzoai.pubsub.settings.options import SendPolicy


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user wants messages.

    Attributes:
        sub: Unique number from the caller; identifies the subscription in ports.
        topics: Valid patterns, at least one, none twice.
        since: Replay messages newer than this, Unix milliseconds.
        history: Replay at most this many of the newest messages per topic.
        after: Replay the messages after these positions, by concrete topic. None: unknown to this
            peer.
        presence: Whether presence is wanted.
    """

    sub: int
    topics: tuple[str, ...]
    since: int | None = None
    history: int | None = None
    after: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    presence: bool = False


@dataclass(slots=True)  # not frozen: that makes it four times as slow to create
class Publish:
    """The user publishes.

    Attributes:
        ref: Unique number from the caller; identifies the publish in `settle`.
        messages: Valid publications in order, each with an id: one, or at least one with `batch`.
        size: Their size on the wire in bytes, for the limit of the queue.
        policy: What to do if the queue is full. With `block`, the queue takes it anyway.
        key: This publish replaces an unsent one with the same key; only with the policy `latest`.
        batch: Sent as one frame with one answer per item.
        background: Sent after the others when the rate is used up.
    """

    ref: int
    messages: tuple[Publication, ...]
    size: int
    policy: SendPolicy = "error"
    key: str | None = None
    batch: bool = False
    background: bool = False
