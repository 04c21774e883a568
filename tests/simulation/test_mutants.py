"""The simulation detects each of these broken rules within a few seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.dialects.plain.id_cursor import IdCursor
from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.generated.wire import PublishResult
from hanzoai.pubsub.session.attempts import Credentials
from hanzoai.pubsub.session.cursor import Request, SeqCursor
from hanzoai.pubsub.session.lifecycle import Lifecycle
from hanzoai.pubsub.session.own_presence import OwnPresence
from hanzoai.pubsub.session.ports import Acked, Rejected, Timers
from hanzoai.pubsub.session.publishes import Publishes
from hanzoai.pubsub.session.routes import SubscriptionState
from hanzoai.pubsub.session.subscriptions import Subscriptions
from tests.simulation.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import Message
    from hanzoai.pubsub.session.cursor import Replay

SEEDS = 250
"""Maximum seeds per mutant; the first ten find most mutants."""

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def nothing(*_: object) -> None:
    """Replaces a step that is left out."""


def no_steps(*_: object) -> list[object]:
    return []


def ask_for_nothing(_: object) -> Request:
    return Request(None, {})


def mutant(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[break_it.__name__] = break_it
    return break_it


@mutant
def a_duplicate_is_delivered(patch: Patch) -> None:
    admit = SeqCursor.admit

    def broken(self: SeqCursor, messages: Sequence[Message]) -> Any:
        new, beyond = admit(self, messages)
        return (new if beyond else messages), beyond

    patch.setattr(SeqCursor, "admit", broken)


@mutant
def a_jump_is_passed_over(patch: Patch) -> None:
    admit = SeqCursor.admit

    def broken(self: SeqCursor, messages: Sequence[Message]) -> Any:
        [message] = messages
        mark = self._marks.get(message.topic)
        if mark is not None and message.seq is not None and message.seq > mark.seq:
            mark.seq = message.seq
            return messages, ()
        return admit(self, messages)

    patch.setattr(SeqCursor, "admit", broken)


@mutant
def a_jump_is_a_gap_at_once(patch: Patch) -> None:
    def broken(self: Subscriptions, one: Any, beyond: Sequence[Message]) -> None:
        one.replay.held = list(beyond)
        self._admit(one, 0, complete=True)
        one.replay.held = []

    patch.setattr(Subscriptions, "_recover", broken)


@mutant
def a_gap_is_kept_secret(patch: Patch) -> None:
    replay = SeqCursor.replay

    def broken(self: SeqCursor, answer: Replay) -> Any:
        rest = replay(self, answer)
        answer.steps = [step for step in answer.steps if not isinstance(step, Gap)]
        return rest

    patch.setattr(SeqCursor, "replay", broken)


@mutant
def positions_are_not_asked_for(patch: Patch) -> None:
    patch.setattr(SeqCursor, "request", ask_for_nothing)


@mutant
def the_held_come_before_the_replay(patch: Patch) -> None:
    replay = SeqCursor.replay

    def broken(self: SeqCursor, replayed: Replay) -> Any:
        answer = replayed.answer
        answer.history, replayed.held = list(replayed.held), answer.history
        return replay(self, replayed)

    patch.setattr(SeqCursor, "replay", broken)


@mutant
def live_messages_are_not_held(patch: Patch) -> None:
    def broken(self: Subscriptions, one: Any, message: Message) -> None:
        one.replay.whole = True

    patch.setattr(Subscriptions, "_hold", broken)
    patch.setattr(IdCursor, "_holes", no_steps)


@mutant
def what_could_not_be_held_is_forgotten(patch: Patch) -> None:
    hold = Subscriptions._hold

    def broken(self: Subscriptions, one: Any, message: Message) -> None:
        hold(self, one, message)
        one.replay.whole = True

    patch.setattr(Subscriptions, "_hold", broken)


@mutant
def the_first_part_of_an_answer_counts_as_all(patch: Patch) -> None:
    subscribed = Subscriptions.subscribed

    def broken(self: Subscriptions, frame: Any, at: int) -> None:
        subscribed(self, frame.model_copy(update={"more": None}), at)

    patch.setattr(Subscriptions, "subscribed", broken)


@mutant
def subscriptions_stay_live_over_a_drop(patch: Patch) -> None:
    patch.setattr(SubscriptionState, "forget", nothing)

    patch.setattr(Subscriptions, "connected", nothing)


@mutant
def the_first_mark_is_not_taken(patch: Patch) -> None:
    advance = SeqCursor._advance

    def broken(self: SeqCursor, *args: Any, stated: bool = False, **more: Any) -> bool:
        return not stated and advance(self, *args, **more)

    patch.setattr(SeqCursor, "_advance", broken)


@mutant
def no_overlap(patch: Patch) -> None:
    init = IdCursor.__init__

    def broken(self: IdCursor, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._overlap = 0

    patch.setattr(IdCursor, "__init__", broken)
    patch.setattr(IdCursor, "_holes", no_steps)


@mutant
def a_replay_never_begins_before_since(patch: Patch) -> None:
    request = IdCursor.request

    def broken(self: IdCursor) -> Request:
        asked = request(self)
        return asked if asked.since is None else Request(max(asked.since, self._start or 0), {})

    patch.setattr(IdCursor, "request", broken)


@mutant
def known_by_age(patch: Patch) -> None:
    admit = IdCursor.admit

    def broken(self: IdCursor, messages: Sequence[Message]) -> Any:
        newest = self._newest
        return admit(self, [m for m in messages if newest is None or m.timestamp >= newest])

    patch.setattr(IdCursor, "admit", broken)


@mutant
def ids_are_not_remembered(patch: Patch) -> None:
    remember = IdCursor._remember

    def broken(self: IdCursor, message: Message, *, passed: bool = False) -> None:
        remember(self, message, passed=passed)
        self._near[message.topic].clear()

    patch.setattr(IdCursor, "_remember", broken)


@mutant
def a_plain_gap_is_kept_secret(patch: Patch) -> None:
    patch.setattr(IdCursor, "_holes", no_steps)


@mutant
def in_flight_is_forgotten_on_a_drop(patch: Patch) -> None:
    lost = Publishes.lost

    def broken(self: Publishes) -> None:
        for entry in list(self._flight.values()):
            self._drop(entry)
        lost(self)

    patch.setattr(Publishes, "lost", broken)


@mutant
def sent_again_after_what_waits(patch: Patch) -> None:
    enqueue = Publishes._enqueue

    def broken(self: Publishes, entry: Any) -> None:
        enqueue(self, entry)
        self._queue.move_to_end(entry.publish.ref)

    patch.setattr(Publishes, "_enqueue", broken)


@mutant
def sent_again_to_one_who_cannot_tell(patch: Patch) -> None:
    patch.setattr(Publishes, "_settle_doubted", nothing)


@mutant
def expired_is_sent_later(patch: Patch) -> None:
    def broken(self: Publishes, refs: list[int]) -> None:
        for entry in [*self._flight.values(), *self._queue.values()]:
            if entry.publish.ref in refs:
                self._settle(entry, Rejected(code="timeout", message="too late"))
                self._enqueue(entry)

    patch.setattr(Publishes, "expire", broken)


@mutant
def rate_limited_is_taken_for_an_answer(patch: Patch) -> None:
    def broken(self: Publishes, entry: Any, answers: object, *, more: bool = False) -> None:
        self._drop(entry)
        results = tuple(PublishResult(id=m.id) for m in entry.publish.messages)
        self._ports.settle(entry.publish.ref, Acked(results))
        self.flush()

    patch.setattr(Publishes, "take", broken)


@mutant
def two_callbacks_at_a_time(patch: Patch) -> None:
    fetch = Credentials.fetch

    def broken(self: Credentials, at: int | None, *, expiring: bool) -> None:
        self._call = None
        fetch(self, at, expiring=expiring)

    patch.setattr(Credentials, "fetch", broken)


@mutant
def a_timer_outlives_the_session(patch: Patch) -> None:
    patch.setattr(Timers, "stop_all", nothing)


@mutant
def the_transport_outlives_the_session(patch: Patch) -> None:
    hang_up = Lifecycle._hang_up

    def broken(self: Lifecycle, code: int) -> None:
        if self.state not in ("closed", "failed"):
            hang_up(self, code)

    patch.setattr(Lifecycle, "_hang_up", broken)


@mutant
def the_end_settles_nothing(patch: Patch) -> None:
    patch.setattr(Publishes, "settle_all", nothing)


@mutant
def the_end_settles_no_update_of_presence(patch: Patch) -> None:
    patch.setattr(OwnPresence, "settle_all", nothing)


@mutant
def an_update_that_another_replaces_is_not_settled(patch: Patch) -> None:
    patch.setattr(OwnPresence, "_merge_waiting", nothing)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds(name: str, monkeypatch: Patch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except Exception:
            return
    pytest.fail(f"{name} survived {SEEDS} seeds")
