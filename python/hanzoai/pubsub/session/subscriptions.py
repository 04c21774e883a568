"""Subscriptions of a session: requests, answers, rejections and routing; each with a cursor.

HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.generated.wire import Denial, SubscribeFrame, UnsubscribeFrame
from hanzoai.pubsub.session.cursor import Answer, Replay, SeqCursor
from hanzoai.pubsub.session.events import is_retryable
from hanzoai.pubsub.session.presence import TYPES, Presence
from hanzoai.pubsub.session.routes import JOINING, LIVE, PENDING, Routes, SubscriptionState
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.gap import GapReason
    from hanzoai.pubsub.generated.wire import ErrorFrame, Message, SubscribedFrame
    from hanzoai.pubsub.session.cursor import Cursors
    from hanzoai.pubsub.session.ports import Context, Peer, Subscribe

MAX_WAIT: Final = 60_000
"""Maximum wait before the next request that a server can impose, milliseconds."""

REFUSED_FOR_NOW: Final = 1_000
"""Milliseconds to wait if a server rejects a subscription temporarily without a time."""


class Subscriptions:
    """All subscriptions of a session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ports = context.ports
        self._timers = context.timers
        self._deliver = context.ports.deliver
        self.all: Final[dict[int, SubscriptionState]] = {}  # by number, in the order of the calls
        self.routes: Final = Routes()
        self.requests: Final[dict[str, SubscriptionState]] = {}  # unanswered, by `ref`
        self.cursors: Cursors = SeqCursor  # creates those that fit the peer
        self._number = 0
        self.presence: Final = Presence(context)
        self._last: Peer | None = None  # of the previous connection

    @property
    def _incremental(self) -> bool:
        """Whether the connection can add and remove single subscriptions."""
        peer = self._context.peer
        return peer is not None and peer.incremental

    # ---------------------------------------------------------------- from the program

    def subscribe(self, request: Subscribe) -> None:
        """Add a subscription; request it if there is a connection."""
        state = SubscriptionState(request, self.cursors(request, self._context.options))
        self.all[request.sub] = state
        self._route(state)
        if self._context.peer is not None:
            self._request(state)

    def unsubscribe(self, state: SubscriptionState) -> None:
        """End a subscription; unsubscribe from patterns that no other subscription has."""
        self._remove(state)
        if state.phase == PENDING:
            return
        if not self._incremental and self.all:
            self._schedule_rejoin(0)
            return
        freed = [pattern for pattern in state.patterns if pattern not in self.routes.by_pattern]
        if freed:
            self._ports.send(UnsubscribeFrame(topics=freed, ref=self._next_ref("u")))

    # ---------------------------------------------------------------- from the connection

    def connected(self) -> None:
        """A connection is open: request every subscription from its position."""
        peer = cast("Peer", self._context.peer)
        last, self._last = self._last, peer
        moved = last is not None and last.node != peer.node
        self.presence.reconnected(known=last is None or last.client_id == peer.client_id)
        for state in list(self.all.values()):
            self._update_cursor(state, peer, moved=moved)
            self._send_subscribe(state)

    def lost(self) -> None:
        """The connection is lost."""
        self.presence.lost()
        for state in self.all.values():
            state.forget()

    def rejoin(self) -> None:
        """The timer `rejoin` fired: request rejected subscriptions again; on a stream, all."""
        if not self._incremental:
            self.presence.lost()
        for state in list(self.all.values()):
            if not self._incremental or state.retry_pending:
                self._send_subscribe(state)

    def messages(self, messages: Sequence[Message]) -> None:
        """Deliver live messages to every matching subscription, once."""
        if self._context.peer is None:
            return
        start, end = 0, len(messages)
        while start < end:
            # A run of messages of one topic, or one change of presence.
            first = messages[start]
            topic = first.topic
            shown = first.type not in TYPES
            stop = end if type(messages) is Run else start + 1
            while (
                shown
                and stop < end
                and (one := messages[stop]).topic == topic
                and one.type not in TYPES
            ):
                stop += 1
            # A slice of a `Run` is a list.
            run = messages if stop - start == end else messages[start:stop]
            start = stop
            states = self.routes.known.get(topic)
            if states is None:
                states = self.routes.find(topic)
            if shown or first.seq is not None:
                for state in states:
                    waiting: Sequence[Message] = run
                    if state.phase == LIVE:
                        new, waiting = state.cursor.admit(run)
                        if shown and new:
                            self._deliver(state.request.sub, new)
                        if waiting:
                            self._recover(state, ())
                    if state.phase == JOINING:
                        for one in waiting:
                            self._hold(state, one)
            if not shown:
                self.presence.message(first)

    def subscribed(self, frame: SubscribedFrame, at: int) -> None:
        """The server answered a `subscribe`, completely or in part."""
        ref = frame.ref or ""
        state = self.requests.get(ref)
        if state is None:
            return
        answer = state.replay.answer
        answer.add(frame)
        if not frame.more:
            del self.requests[ref]
            self._answered(state, at)
            return
        # If the connection breaks between two parts, the next request continues from there. A
        # request for the newest few cannot continue, and an answer by time and ids is complete only
        # at its end.
        accepts_parts = state.cursor.uses_seq and state.limit is None
        if accepts_parts and len(answer.history) > self._context.options.held_messages:
            self._admit(state, at, complete=False)
            answer.history, answer.reset = [], {}

    def rejected(self, frame: ErrorFrame) -> bool:
        """The server rejected a `subscribe`; False if the `ref` is unknown."""
        state = self.requests.pop(frame.ref or "", None)
        if state is None:
            return False
        state.forget()
        if is_retryable(frame.code):
            state.refusal = frame
            self.retry_later(state, frame.retry_after_ms or 0)
            return True
        refused = [frame.topic] if frame.topic in state.patterns else state.patterns
        state.denied += [Denial(topic=p, code=frame.code, message=frame.message) for p in refused]
        self._remove_patterns(state, refused)
        if state.patterns:
            self._request(state)
        else:
            self._ports.joined(state.request.sub, (), tuple(state.denied))
        return True

    def retry_later(self, state: SubscriptionState, milliseconds: int = 0) -> None:
        """Request it again after a pause: an error may have concerned it."""
        state.retry_pending = True
        state.reported = False
        self._schedule_rejoin(max(REFUSED_FOR_NOW, milliseconds))

    # ---------------------------------------------------------------- requests

    def _next_ref(self, kind: str) -> str:
        """A new `ref`."""
        self._number += 1
        return f"{kind}{self._number}"

    def _request(self, state: SubscriptionState) -> None:
        """Request a subscription; on an event stream, all of them after a while."""
        if self._incremental:
            self._send_subscribe(state)
        else:
            self._schedule_rejoin(0)

    def _send_subscribe(self, state: SubscriptionState) -> None:
        self._route(state)  # also what an earlier answer rejected for now
        self.requests.pop(state.ref, None)
        ref = state.ref = self._next_ref("s")
        self.requests[ref] = state
        state.phase = JOINING
        state.retry_pending = False
        state.replay.answer = Answer()
        since, after = state.cursor.request()
        self._ports.send(
            SubscribeFrame(
                topics=list(state.patterns),
                since=since,
                after=after or None,
                history=state.limit,
                presence=self.presence.watches(state),
                ref=ref,
            )
        )

    def _recover(self, state: SubscriptionState, held: Sequence[Message]) -> None:
        """Request it again from its cursor, and hold messages in the meantime."""
        state.replay = Replay(held=[*held])
        state.phase = JOINING
        self._request(state)

    def _schedule_rejoin(self, milliseconds: int) -> None:
        """Schedule `rejoin` after this time, unless it is scheduled earlier."""
        after = self._timers.after("rejoin")
        milliseconds = min(MAX_WAIT, milliseconds)
        if after is None or milliseconds < after:
            self._timers.start("rejoin", milliseconds)

    # ---------------------------------------------------------------- answers

    def _hold(self, state: SubscriptionState, message: Message) -> None:
        replay = state.replay
        if replay.whole and len(replay.held) < self._context.options.held_messages:
            replay.held.append(message)
            return
        since = state.request.since
        for one in (*replay.held, message):
            # By time, only messages after `since` are surely replayed; clocks of nodes differ.
            replayed = not state.cursor.uses_seq and (since is None or one.timestamp > since)
            if one.seq is None and not replayed:
                replay.lost[one.topic] = replay.lost.get(one.topic, 0) + 1
        replay.held = []
        replay.whole = False

    def _answered(self, state: SubscriptionState, at: int) -> None:
        state.retry_pending = False
        if not self._apply_denials(state):
            return
        replay = state.replay
        rest = self._admit(state, at, complete=True)
        for topic, count in replay.lost.items():
            self._ports.gap(state.request.sub, Gap(topic, None, None, count, "unproven"))
        state.answered = True
        state.phase = LIVE
        state.replay = Replay()
        self.presence.answered(state)
        if rest or not replay.whole:
            self._recover(state, rest)
        else:
            state.cursor.retried.clear()

    def _admit(self, state: SubscriptionState, at: int, *, complete: bool) -> Sequence[Message]:
        replay = state.replay
        replay.at, replay.complete = at, complete
        replay.first, replay.limit = not state.answered, state.limit
        replay.steps, state.gaps = [*state.gaps], []
        rest = state.cursor.replay(replay)
        sub = state.request.sub
        run: list[Message] = []
        shown = [one for one in replay.steps if isinstance(one, Gap) or one.type not in TYPES]
        many = sum(not isinstance(step, Gap) for step in shown) > 1
        for step in shown:
            if isinstance(step, Gap):
                if run:
                    self._deliver(sub, run, many)
                    run = []
                self._ports.gap(sub, step, many)
            else:
                run.append(step)
        if run:
            self._deliver(sub, run, many)
        return rest

    # ---------------------------------------------------------------- refusals

    def _apply_denials(self, state: SubscriptionState) -> bool:
        """Process denied and granted patterns of an answer; whether any pattern is active."""
        answered = state.replay.answer.denied
        denied = state.denied + [d for d in answered if not is_retryable(d.code)]
        later = {d.topic for d in answered if is_retryable(d.code)}
        state.denied = []
        self._remove_patterns(state, [denial.topic for denial in denied])
        granted = tuple(pattern for pattern in state.patterns if pattern not in later)
        if len(granted) < len(state.patterns):
            state.refusal = next(d for d in answered if d.topic in later)
            self.retry_later(state)
            if not granted:
                state.forget()
                state.denied = denied
                return False
            # Messages of the others that arrive by other subscriptions will be replayed.
            self.presence.show(state, granted, hidden=True)
            self._unroute(state, [*later])
            held = state.replay.held
            state.replay.held = [
                m for m in held if m.seq is None or state in self.routes.find(m.topic)
            ]
        if not state.reported or denied:
            self._ports.joined(state.request.sub, granted, tuple(denied))
        state.reported = not state.retry_pending
        return bool(granted)

    def _remove_patterns(self, state: SubscriptionState, patterns: Sequence[str]) -> None:
        self._unroute(state, patterns)
        refused = set(patterns)
        state.patterns = [pattern for pattern in state.patterns if pattern not in refused]
        if not state.patterns:
            self._remove(state)

    def _remove(self, state: SubscriptionState) -> None:
        self.all.pop(state.request.sub, None)
        self._unroute(state, state.patterns)
        self.requests.pop(state.ref, None)

    # ---------------------------------------------------------------- cursors

    def _update_cursor(self, state: SubscriptionState, peer: Peer, *, moved: bool) -> None:
        """Give it a cursor that fits the peer; `moved`: its positions are from another node."""
        if state.cursor.uses_seq == ("seq" in peer.features) and not moved:
            return
        since, after = state.cursor.moved()
        state.request = replace(state.request, since=since, after=after)
        state.answered = False
        reason: GapReason = "node_changed" if moved else "unproven"
        state.gaps = [Gap(t, None, None, None, reason) for t, seq in after.items() if seq is None]
        state.cursor = self.cursors(state.request, self._context.options)

    # ---------------------------------------------------------------- routes

    def _route(self, state: SubscriptionState) -> None:
        self.presence.add(state)
        self.routes.add(state)

    def _unroute(self, state: SubscriptionState, patterns: Sequence[str]) -> None:
        self.routes.remove(state, patterns)
        self.presence.remove(state, patterns)
