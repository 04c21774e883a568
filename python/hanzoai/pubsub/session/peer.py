"""What the server of a connection can do, read from `auth.ok`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.generated.wire import Limits

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import AuthOkFrame


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side of one connection.

    Attributes:
        client_id: The id that it gave this client.
        features: What it says that it can do; empty for a plain peer.
        limits: What it says that it allows.
        token_left: Milliseconds until the token ends, if it says it.
        plain: It implements only HIP-56, so it is sent nothing more.
        ref: It echoes `ref`.
        ack: It answers `publish`, with the `ref` that it was given.
        seq: It numbers the messages of a topic.
        idempotent: It publishes an id once.
        batch: It takes `publish` with `messages`.
        incremental: Subscriptions may come and go one by one; False for an event stream.
        burst: Publishes that may go at once; see `burst_of`.
        rate: Publishes per second that it allows; None or 0 for no limit that is known.
        history: Messages that it retains a topic.
        node: The node whose positions it gives; None where positions hold on every node.
    """

    client_id: str = ""
    features: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    token_left: int | None = None
    plain: bool = True
    ref: bool = False
    ack: bool = False
    seq: bool = False
    idempotent: bool = False
    batch: bool = False
    incremental: bool = True
    rate: int | None = None
    history: int = LIMITS.history_max_messages
    node: str | None = None
    burst: int = field(init=False)

    def __post_init__(self) -> None:
        # Read with each publish.
        object.__setattr__(self, "burst", burst_of(self.rate or 0))


def burst_of(rate: int) -> int:
    """Publishes that may go at once where so many per second are allowed: a tenth less.

    Budgets of two clocks that are equal meet at zero, where the network's jitter alone makes the
    server refuse; and what was refused comes after what follows it.
    """
    return rate - min(max(1, rate // 10), rate // 2)


def read_peer(frame: AuthOkFrame, at: int, *, incremental: bool) -> Peer:
    """What `auth.ok` says of the server.

    Args:
        frame: The frame.
        at: When it came, Unix milliseconds by the client's clock.
        incremental: Whether subscriptions of the transport may come and go one by one.
    """
    features = frozenset(() if frame.version is None else frame.features or ())
    limits = frame.limits or Limits()
    now = at if frame.server_time is None else frame.server_time
    return Peer(
        client_id=frame.client_id,
        features=features,
        limits=limits,
        token_left=None if frame.expires_at is None else frame.expires_at - now,
        plain=frame.version is None,
        ref="ref" in features,
        # Beside an event stream a publish is a request, which every server answers.
        ack=not incremental or features >= {"ack", "ref"},
        seq="seq" in features,
        idempotent="idempotency" in features,
        batch="batch" in features,
        incremental=incremental,
        rate=limits.publish_rate,
        history=LIMITS.history_max_messages if limits.history_max is None else limits.history_max,
        node=frame.node,
    )
