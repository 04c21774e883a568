"""Features and limits of the connected server, read from `auth.ok`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import Limits

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import AuthOkFrame


@dataclass(frozen=True)
class Peer:
    """The other side of one connection."""

    client_id: str = ""  # assigned to this client
    features: frozenset[str] = frozenset()  # empty for a plain peer
    limits: Limits = field(default_factory=Limits)
    token_life: int | None = None  # milliseconds until the token expires, if stated
    plain: bool = True  # it implements only HIP-56, so the client sends nothing else
    acks: bool = False  # it answers publishes; on an event stream, each is a request
    resends: bool = False  # unanswered publishes can be sent again under the same id
    incremental: bool = True  # single subscriptions can be added; not on an event stream
    rate: int = 0  # allowed publishes per second; 0 if no limit is known
    node: str | None = None  # for which its positions are valid; None if for all
    user_id: str | None = None  # of this client, if stated

    @cached_property  # it is read for each publish
    def burst(self) -> float:
        """Maximum publishes at once: a tenth less than the rate; infinite without a limit."""
        # With equal budgets, network jitter alone would cause rejections by the server when both
        # are used up; and a rejected publish would be overtaken by later ones.
        return self.rate - min(max(1, self.rate // 10), self.rate // 2) or math.inf


def read_peer(frame: AuthOkFrame, at: int, *, incremental: bool) -> Peer:
    """Read `auth.ok`, which arrived at this time, Unix milliseconds by the client's clock."""
    features = frozenset(() if frame.version is None else frame.features or ())
    limits = frame.limits or Limits()
    now = at if frame.server_time is None else frame.server_time
    return Peer(
        client_id=frame.client_id,
        features=features,
        limits=limits,
        token_life=None if frame.expires_at is None else frame.expires_at - now,
        plain=frame.version is None,
        acks=not incremental or features >= {"ack", "ref"},
        resends="idempotency" in features,
        incremental=incremental,
        rate=limits.publish_rate or 0,
        node=frame.node,
        user_id=frame.user_id,
    )
