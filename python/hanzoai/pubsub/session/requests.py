"""Requests to subscribe: which subscriptions there are, how each is asked for, and when again.

HIP-56 H-042, H-043.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.wire import SubscribeFrame
from hanzoai.pubsub.session.asks import Asks
from hanzoai.pubsub.session.cursor import SeqCursor
from hanzoai.pubsub.session.effects import Gap, PresenceChanged, Send
from hanzoai.pubsub.session.id_cursor import IdCursor
from hanzoai.pubsub.session.join import JOINING, Join
from hanzoai.pubsub.session.presence import PresenceMap
from hanzoai.pubsub.session.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.session.effects import Effect
    from hanzoai.pubsub.session.events import Subscribe
    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.session.presence import Change
    from hanzoai.pubsub.settings.session import SessionOptions

MAX_WAIT: Final = 60_000
"""Longest wait before a subscription is asked for again that a server may impose, milliseconds."""


class Requests:
    """The subscriptions of a session and what is asked for them. Methods append effects to `out`.

    Attributes:
        due: Milliseconds after which the timer `rejoin` is to fire; None if nothing has changed.
    """

    def __init__(self, options: SessionOptions) -> None:
        self.due: int | None = None
        self._running: int | None = None
        self.presence: Final = PresenceMap()
        self._options = options
        self._joins: dict[int, Join] = {}
        self._routes: Final = Routes()
        self._asks: Final = Asks()
        self._peer: Peer | None = None

    # ---------------------------------------------------------------- what others may ask

    def positions(self, sub: int) -> dict[str, int]:
        """Position of the newest message of each topic, in order to begin there another time."""
        join = self._joins.get(sub)
        return {} if join is None else join.cursor.positions

    def wants(self, topic: str) -> bool:
        """Whether any subscription takes the topic."""
        return bool(self._routes.find(topic))

    def take_due(self) -> int | None:
        """Milliseconds after which the timer `rejoin` is to fire, if it has to be started anew."""
        due, self.due = self.due, None
        return due

    # ---------------------------------------------------------------- requests

    def _request(self, join: Join, out: list[Effect]) -> None:
        """Ask for a subscription; on an event stream, for all, in a while."""
        if self._peer is not None and self._peer.incremental:
            self._ask(join, out)
        else:
            self._later(0)

    def _ask(self, join: Join, out: list[Effect]) -> None:
        peer = self._peer
        if peer is None:
            return
        if peer.ref:
            self._asks.drop(join.ask)
        if join.unrouted:
            join.unrouted = False
            self._routes.add(join)
            self._show(join, out)
        ref = self._asks.add(join, echoed=peer.ref)
        join.ask = ref
        join.phase = JOINING
        join.again = False
        join.clear_answer()
        since, after = join.cursor.request()
        limit = None if join.answered else join.event.history
        if peer.plain:
            if since is None and limit is not None:
                since = 0
            out.append(Send(SubscribeFrame(topics=list(join.patterns), since=since)))
            return
        out.append(
            Send(
                SubscribeFrame(
                    topics=list(join.patterns),
                    since=since,
                    after=after if peer.seq and after else None,
                    history=limit,
                    presence=self._watched(join),
                    ref=ref if peer.ref else None,
                )
            )
        )

    def _watched(self, join: Join) -> bool:
        """Whether presence is wanted by any subscription that shares a pattern with this one."""
        return join.event.presence or any(
            other.event.presence and not set(other.patterns).isdisjoint(join.patterns)
            for other in self._joins.values()
        )

    def _later(self, milliseconds: int) -> None:
        """Have `rejoin` called after so long, unless that is going to happen sooner."""
        if self._running is None or milliseconds < self._running:
            self.due = self._running = min(MAX_WAIT, milliseconds)

    # ---------------------------------------------------------------- cursors

    def _new_cursor(self, event: Subscribe, peer: Peer | None) -> SeqCursor | IdCursor:
        options = self._options
        if peer is None or peer.seq:
            return SeqCursor(
                event.since,
                event.after,
                overlap=options.overlap,
                remembered=options.remembered_topics,
            )
        return IdCursor(
            event.since,
            event.after,
            overlap=options.overlap,
            ids=options.remembered_ids,
            topics=options.remembered_topics,
            history=peer.history,
        )

    def _suit(self, join: Join, peer: Peer, out: list[Effect]) -> None:
        """Give the subscription the cursor that fits the peer, which may be another than before."""
        if isinstance(join.cursor, SeqCursor) == peer.seq:
            return
        old = join.cursor
        join.cursor = self._new_cursor(join.event, peer)
        if join.answered:
            join.answered = False
            join.cursor.begin(old.newest)
            out.extend(Gap(join.sub, topic, None, None, None, "unproven") for topic in old.topics)

    # ---------------------------------------------------------------- the set

    def _remove(self, join: Join) -> None:
        self._joins.pop(join.sub, None)
        for pattern in join.patterns:
            self._routes.remove(pattern, join)
        if self._peer is not None and self._peer.ref:
            self._asks.drop(join.ask)
        join.ask = ""
        if join.event.presence:
            self.presence.keep(self._has_watcher)

    def _has_pattern(self, pattern: str) -> bool:
        return any(pattern in join.patterns for join in self._joins.values())

    def _has_watcher(self, topic: str) -> bool:
        """Whether a subscription that is told of the topic wants its presence."""
        return any(join.event.presence for join in self._routes.find(topic))

    def _show(self, join: Join, out: list[Effect]) -> None:
        """Tell one who comes later what the others know."""
        if join.event.presence:
            for topic, members in self.presence.complete():
                if join.takes(topic):
                    out.append(PresenceChanged(join.sub, topic, members, "snapshot"))

    def _tell(self, changes: Sequence[Change], out: list[Effect]) -> None:
        for change in changes:
            for join in self._routes.find(change.topic):
                if join.event.presence:
                    out.append(PresenceChanged(join.sub, *change))
