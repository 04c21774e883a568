"""Subscriptions inside a session: asked for, answered, routed to; each with a cursor of its own.

HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.generated.wire import (
    Denial,
    ErrorFrame,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.session.asks import Asks
from hanzoai.pubsub.session.cursor import JUMP, NEW, Missing, Replay, SeqCursor
from hanzoai.pubsub.session.effects import Deliver, Gap, Joined, PresenceChanged, Send
from hanzoai.pubsub.session.id_cursor import IdCursor
from hanzoai.pubsub.session.join import JOINING, LIVE, PENDING, Join
from hanzoai.pubsub.session.presence import KINDS, PresenceMap
from hanzoai.pubsub.session.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import Envelope, PresenceSnapshotFrame
    from hanzoai.pubsub.session.effects import Effect
    from hanzoai.pubsub.session.events import Subscribe
    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.session.presence import Change
    from hanzoai.pubsub.settings.session import SessionOptions

REFUSED_FOR_NOW: Final = 1_000
"""Milliseconds to wait where a server refuses a subscription for now and names no time."""

MAX_WAIT: Final = 60_000
"""Longest such wait that a server may impose, milliseconds."""

MAX_DOUBTS: Final = 5
"""Times that an `error` may be about a publish instead, before it is about the subscription; once
where it names a topic of the subscription."""

_OF_PUBLISH: Final = frozenset(
    {"rate_limited", "payload_too_large", "invalid_payload", "conflict", "slow_consumer"}
)
"""Codes that cannot be the answer to a `subscribe`."""


class Joins:
    """All subscriptions of a session. Methods append effects to `out`.

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

    # ---------------------------------------------------------------- from the user

    def subscribe(self, event: Subscribe, out: list[Effect]) -> None:
        """Take a subscription; ask for it if there is a connection."""
        if event.sub in self._joins or not event.topics:
            return
        peer = self._peer
        join = Join(event, self._new_cursor(event, peer))
        self._joins[event.sub] = join
        self._routes.add(join)
        if event.presence:
            for topic, members in self.presence.complete():
                if join.takes(topic):
                    out.append(PresenceChanged(join.sub, topic, members, "snapshot"))
        if peer is not None:
            if peer.incremental:
                self._ask(join, out)
            else:
                self._later(0)

    def unsubscribe(self, sub: int, out: list[Effect]) -> None:
        """End a subscription; tell the server of patterns that no other one has."""
        join = self._joins.get(sub)
        if join is None:
            return
        patterns = list(join.patterns)
        asked = join.phase != PENDING
        self._remove(join)
        if self._peer is None or not asked:
            return
        if not self._peer.incremental:
            if self._joins:
                self._later(0)
                return
            freed = patterns
        else:
            freed = [p for p in patterns if not self._has_pattern(p)]
        if freed:
            ref = self._asks.next_ref("u")
            named = ref if self._peer.ref else None
            out.append(Send(UnsubscribeFrame(topics=freed, ref=named)))

    # ---------------------------------------------------------------- from the connection

    def connected(self, peer: Peer, out: list[Effect]) -> None:
        """A connection is there: ask for every subscription, each from where it stands."""
        self._peer = peer
        for join in list(self._joins.values()):
            self._suit(join, peer, out)
            self._ask(join, out)

    def lost(self) -> None:
        """The connection is gone."""
        self._peer = None
        self._asks.clear()
        self.due = self._running = None
        for join in self._joins.values():
            join.forget()

    def rejoin(self, out: list[Effect]) -> None:
        """The timer `rejoin` fired: ask for what was refused for now; on a stream, for all."""
        self._running = None
        if self._peer is None:
            return
        for join in list(self._joins.values()):
            if not self._peer.incremental or join.phase == PENDING or join.again:
                self._asks.drop(join.ask)
                join.quiet = join.quiet or (join.phase == LIVE and not join.again)
                self._ask(join, out, keep_held=True)

    def message(self, message: Envelope, out: list[Effect]) -> None:
        """Take a live message to every subscription that wants it, once."""
        topic = message.topic
        joins = self._routes.known.get(topic)
        if joins is None:
            joins = self._routes.find(topic)
        shown = message.type not in KINDS
        for join in joins:
            if join.phase == LIVE:
                verdict = join.cursor.admit(message) if shown or message.seq is not None else NEW
                if verdict == NEW:
                    if shown:
                        out.append(Deliver(join.sub, message))
                elif verdict == JUMP:
                    self._heal(join, message, out)
            elif join.phase == JOINING and (shown or message.seq is not None):
                self._hold(join, message)
        if not shown and any(join.event.presence for join in joins):
            self._tell(self.presence.apply(message), out)

    def snapshot(self, frame: PresenceSnapshotFrame, out: list[Effect]) -> None:
        """Everybody present on a topic."""
        if any(join.event.presence for join in self._routes.find(frame.topic)):
            self._tell(self.presence.snapshot(frame.topic, frame.members), out)

    def subscribed(self, frame: SubscribedFrame, at: int, out: list[Effect]) -> None:
        """The server answered a `subscribe`, in whole or in part."""
        ref = self._asks.answered_by(frame)
        join = None if ref is None else self._asks.get(ref)
        if ref is None or join is None:
            return
        if join.ask != ref:
            self._asks.drop(ref)
            return
        join.history += frame.history or ()
        join.positions |= frame.positions or {}
        join.truncated |= dict.fromkeys(frame.truncated or ())
        join.reset |= dict.fromkeys(frame.reset or ())
        join.denied += frame.denied or ()
        if join.timestamp is None:
            join.timestamp = frame.timestamp
        if not frame.more:
            if frame.ref is None:
                granted = set(frame.topics)
                told = {denial.topic for denial in join.denied}
                join.denied += [
                    Denial(topic=pattern, code="forbidden")
                    for pattern in join.patterns
                    if granted and pattern not in granted and pattern not in told
                ]
            self._asks.drop(ref)
            self._answered(join, at, out)
        elif len(join.history) > self._options.held_messages:
            self._admit(join, at, out, complete=False)

    def failed(
        self, frame: ErrorFrame, about_publish: Callable[[str | None], bool], out: list[Effect]
    ) -> bool:
        """The server refused; False if that answers no `subscribe`, or nobody can tell.

        Args:
            frame: What it says.
            about_publish: Whether an `error` without a `ref` may be about a publish. Then the
                subscription is asked for once more after a while, and is refused in the end.
            out: Effects.
        """
        ref = frame.ref
        if ref is None:
            if self._peer is None or self._peer.ref or frame.code in _OF_PUBLISH:
                return False
            ref = self._asks.refused_by(frame.topic)
        join = None if ref is None else self._asks.get(ref)
        if ref is None or join is None:
            return False
        doubts = MAX_DOUBTS if frame.topic is None else 1
        if frame.ref is None and join.doubts < doubts and about_publish(frame.topic):
            if not join.again:
                join.again = True
                join.doubts += 1
                self._later(REFUSED_FOR_NOW)
            return False
        self._asks.drop(ref)
        if join.ask != ref:
            return True
        join.forget()
        if _for_now(frame.code):
            self._later(max(REFUSED_FOR_NOW, frame.retry_after_ms or 0))
            return True
        refused = list(join.patterns)
        if frame.topic in join.patterns and len(join.patterns) > 1:
            refused = [frame.topic]
        join.denied += [Denial(topic=p, code=frame.code, message=frame.message) for p in refused]
        self._deny(join, refused)
        if not join.patterns:
            out.append(Joined(join.sub, (), tuple(join.denied)))
        elif self._peer is not None and self._peer.incremental:
            self._ask(join, out)
        else:
            self._later(0)
        return True

    # ---------------------------------------------------------------- inside

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

    def _ask(self, join: Join, out: list[Effect], *, keep_held: bool = False) -> None:
        peer = self._peer
        if peer is None:
            return
        if peer.ref:
            self._asks.drop(join.ask)
        ref = self._asks.add(join)
        join.ask = ref
        join.phase = JOINING
        join.again = False
        join.clear_answer()
        if not keep_held:
            join.held = []
            join.lost = {}
            join.whole = True
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

    def _heal(self, join: Join, message: Envelope, out: list[Effect]) -> None:
        """A jump: ask once more from where the cursor stands, and hold what comes meanwhile."""
        join.healed[message.topic] = join.cursor.position(message.topic)
        self._ask_again(join, [message], out)

    def _ask_again(self, join: Join, held: Sequence[Envelope], out: list[Effect]) -> None:
        join.quiet = True
        join.held = list(held)
        join.lost = {}
        join.whole = True
        join.phase = JOINING
        if self._peer is not None and self._peer.incremental:
            self._ask(join, out, keep_held=True)
        else:
            join.ask = ""
            self._later(0)

    def _hold(self, join: Join, message: Envelope) -> None:
        if join.whole and len(join.held) < self._options.held_messages:
            join.held.append(message)
            return
        for one in (*join.held, message):
            if one.seq is None and isinstance(join.cursor, SeqCursor):
                join.lost[one.topic] = join.lost.get(one.topic, 0) + 1
        join.held = []
        join.whole = False

    def _answered(self, join: Join, at: int, out: list[Effect]) -> None:
        denied = [d for d in join.denied if not _for_now(d.code)]
        later = {d.topic for d in join.denied if _for_now(d.code)}
        join.denied = []
        join.again = False
        join.doubts = 0
        self._deny(join, [denial.topic for denial in denied])
        granted = tuple(pattern for pattern in join.patterns if pattern not in later)
        if len(granted) < len(join.patterns):
            join.again = True
            self._later(REFUSED_FOR_NOW)
            if not granted:
                join.forget()
                join.denied = denied
                return
        if not join.quiet or denied:
            out.append(Joined(join.sub, granted, tuple(denied)))
        if not join.patterns:
            return
        first, quiet = not join.answered, join.quiet
        whole = join.whole
        rest = self._admit(join, at, out, complete=True)
        join.answered = True
        join.phase = LIVE
        join.ask = ""
        join.quiet = False
        join.held = []
        join.lost = {}
        join.whole = True
        if join.event.presence and not first and not quiet:
            self._tell(self.presence.forget_unproven(join.takes), out)
        if rest:
            topic = rest[0].topic
            join.healed[topic] = join.cursor.position(topic)
            self._ask_again(join, rest, out)
        elif not whole:
            self._ask_again(join, (), out)
        else:
            join.healed = {}

    def _admit(
        self, join: Join, at: int, out: list[Effect], *, complete: bool
    ) -> Sequence[Envelope]:
        replay = Replay(
            history=join.history,
            held=join.held if complete else (),
            positions=join.positions if complete else {},
            truncated=join.truncated,
            reset=join.reset,
            timestamp=join.timestamp,
            at=at,
            first=not join.answered,
            limit=None if join.answered else join.event.history,
            whole=join.whole,
            healed=join.healed,
        )
        steps, rest = join.cursor.replay(replay)
        join.history = []
        join.reset = {}
        sub = join.sub
        for step in steps:
            if isinstance(step, Missing):
                out.append(Gap(sub, *step))
            elif step.type not in KINDS:
                out.append(Deliver(sub, step))
        if complete:
            for topic, count in join.lost.items():
                out.append(Gap(sub, topic, None, None, count, "unproven"))
        return rest

    def _deny(self, join: Join, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if pattern in join.patterns:
                join.patterns.remove(pattern)
                self._routes.remove(pattern, join)
        if patterns and not join.patterns:
            self._remove(join)

    def _remove(self, join: Join) -> None:
        self._joins.pop(join.sub, None)
        for pattern in join.patterns:
            self._routes.remove(pattern, join)
        if self._peer is not None and self._peer.ref:
            self._asks.drop(join.ask)
        join.ask = ""
        if join.event.presence:
            self.presence.keep(
                lambda topic: any(other.event.presence for other in self._routes.find(topic))
            )

    def _watched(self, join: Join) -> bool:
        """Whether presence is wanted by any subscription that shares a pattern with this one."""
        return join.event.presence or any(
            other.event.presence and not set(other.patterns).isdisjoint(join.patterns)
            for other in self._joins.values()
        )

    def _has_pattern(self, pattern: str) -> bool:
        return any(pattern in join.patterns for join in self._joins.values())

    def _later(self, milliseconds: int) -> None:
        """Have `rejoin` called after so long, unless that is going to happen sooner."""
        if self._running is None or milliseconds < self._running:
            self.due = self._running = min(MAX_WAIT, milliseconds)

    def _tell(self, changes: Sequence[Change], out: list[Effect]) -> None:
        for change in changes:
            for join in self._routes.find(change.topic):
                if join.event.presence:
                    out.append(PresenceChanged(join.sub, *change))


def _for_now(code: str) -> bool:
    """Whether a refusal is worth another try by itself."""
    known = CODES.get(code)
    return known is not None and known.retryable
