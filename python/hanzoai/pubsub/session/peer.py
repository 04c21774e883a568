"""What the server of a connection can do, read from `auth.ok`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.defaults import LIMITS

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import AuthOkFrame


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side of one connection.

    Attributes:
        plain: It knows HIP-56 and nothing more, so it is sent nothing more.
        ref: It echoes `ref`.
        ack: It answers `publish`, with the `ref` that it was given.
        seq: It numbers the messages of a topic.
        idempotent: It publishes an id once.
        batch: It takes `publish` with `messages`.
        incremental: Subscriptions may come and go one by one; False for an event stream.
        rate: Publishes a second that it allows; None or 0 for no limit that is known.
        history: Messages that it retains a topic.
    """

    plain: bool = True
    ref: bool = False
    ack: bool = False
    seq: bool = False
    idempotent: bool = False
    batch: bool = False
    incremental: bool = True
    rate: int | None = None
    history: int = LIMITS.history_max_messages

    @property
    def burst(self) -> int:
        """Publishes that may go at once: a tenth less than the server allows.

        Budgets of two clocks that are equal meet at zero, where the network's jitter alone makes
        the server refuse; and what was refused comes after what follows it.
        """
        return burst_of(self.rate or 0)


def burst_of(rate: int) -> int:
    """Publishes that may go at once where so many a second are allowed; see `Peer.burst`."""
    return rate - min(max(1, rate // 10), rate // 2)


def read_peer(frame: AuthOkFrame, *, incremental: bool) -> Peer:
    """What `auth.ok` says of the server."""
    features = () if frame.version is None else frame.features or ()
    limits = frame.limits
    retained = None if limits is None else limits.history_max
    return Peer(
        plain=frame.version is None,
        ref="ref" in features,
        # Beside an event stream a publish is a request, which every server answers.
        ack=not incremental or ("ack" in features and "ref" in features),
        seq="seq" in features,
        idempotent="idempotency" in features,
        batch="batch" in features,
        incremental=incremental,
        rate=None if limits is None else limits.publish_rate,
        history=LIMITS.history_max_messages if retained is None else retained,
    )
