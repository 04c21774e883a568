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
    """The user wants messages."""

    sub: int  # unique number from the caller, which names the subscription in ports
    topics: tuple[str, ...]  # valid patterns, at least one, none twice
    since: int | None = None  # replay messages newer than this, Unix milliseconds
    history: int | None = None  # replay at most this many of the newest messages per topic
    # Replay the messages after these positions, by concrete topic; None: unknown to this peer.
    after: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    presence: bool = False


@dataclass(slots=True)  # not frozen: that makes it four times as slow to create
class Publish:
    """The user publishes."""

    ref: int  # unique number from the caller, which names the publish in `settle`
    messages: tuple[Publication, ...]  # valid, each with an id: one, or at least one with `batch`
    size: int  # their bytes on the wire, for the limit of the queue
    policy: SendPolicy = "error"  # for a full queue; with `block`, it takes the publish anyway
    key: str | None = None  # replaces an unsent one with this key; only with the policy `latest`
    batch: bool = False  # sent as one frame with one answer per message
    background: bool = False  # sent after the others when the rate is used up
