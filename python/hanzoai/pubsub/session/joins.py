"""Subscriptions inside a session: asked for, answered, routed to; each with a cursor of its own.

HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import Denial, UnsubscribeFrame
from hanzoai.pubsub.session.cursor import JUMP, NEW, Missing, Replay, SeqCursor
from hanzoai.pubsub.session.effects import Deliver, Gap, Send
from hanzoai.pubsub.session.join import JOINING, LIVE, PENDING, Join
from hanzoai.pubsub.session.presence import KINDS
from hanzoai.pubsub.session.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.generated.wire import Envelope, PresenceSnapshotFrame, SubscribedFrame
    from hanzoai.pubsub.session.effects import Effect
    from hanzoai.pubsub.session.events import Subscribe
    from hanzoai.pubsub.session.peer import Peer


class Joins(Refusals):
    """All subscriptions of a session. Methods append effects to `out`."""

    @property
    def empty(self) -> bool:
        """Whether nothing is subscribed."""
        return not self._joins

    # ---------------------------------------------------------------- from the user

    def subscribe(self, event: Subscribe, out: list[Effect]) -> None:
        """Take a subscription; ask for it if there is a connection."""
        if event.sub in self._joins or not event.topics:
            return
        peer = self._peer
        join = Join(event, self._new_cursor(event, peer))
        self._joins[event.sub] = join
        self._routes.add(join)
        self._show(join, out)
        if peer is not None:
            self._request(join, out)

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
        self.presence.lost()
        for join in self._joins.values():
            join.forget()

    def rejoin(self, out: list[Effect]) -> None:
        """The timer `rejoin` fired: ask for what was refused for now; on a stream, for all."""
        self._running = None
        if self._peer is None:
            return
        if not self._peer.incremental:
            self.presence.lost()
        for join in list(self._joins.values()):
            if not self._peer.incremental or join.phase == PENDING or join.again:
                self._asks.drop(join.ask)
                join.quiet = join.quiet or (join.phase == LIVE and not join.again)
                self._ask(join, out)

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
        if self._has_watcher(frame.topic):
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
        elif len(join.history) > self._options.held_messages and join.piecemeal:
            self._admit(join, at, out, complete=False)

    # ---------------------------------------------------------------- inside

    def _leads_to(self, join: Join, topic: str) -> bool:
        return join in self._routes.find(topic)

    def _named(self, topic: str) -> bool:
        """Whether a subscription with presence names the topic."""
        return any(join.event.presence and topic in join.patterns for join in self._joins.values())

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
        join.ask = ""
        self._request(join, out)

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
        join.again = False
        join.doubts = 0
        if not self._take_denied(join, out):
            return
        quiet = join.quiet
        whole = join.whole
        rest = self._admit(join, at, out, complete=True)
        join.answered = True
        join.phase = LIVE
        join.ask = ""
        join.quiet = False
        join.held = []
        join.lost = {}
        join.whole = True
        again = not quiet or (self._peer is not None and not self._peer.incremental)
        if join.event.presence and again:
            self._tell(
                self.presence.forget_unproven(partial(self._leads_to, join), self._named), out
            )
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
            held=join.held,
            positions=join.positions if complete else {},
            truncated=join.truncated,
            reset=join.reset,
            timestamp=join.timestamp,
            at=at,
            first=not join.answered,
            limit=None if join.answered else join.event.history,
            complete=complete,
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
