"""Publishes of byte protocols are repeated in order until each has its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from pubsub_server.backplane import Published
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.paced_publishes import PATIENCE, publish
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Result = Published | ServiceError

STORED = Published("msg_1", 1, None, False)
AWAY = ServiceError("unavailable", "the store cannot be reached", retry_after_ms=1_000)
TOO_OFTEN = ServiceError("rate_limited", "more than 1 publish per second", retry_after_ms=500)


class Scripted:
    """A service and a publisher: answers calls in turn, and records them."""

    identity = connection = cast("Any", None)
    closing = False

    def __init__(self, *calls: Sequence[Result]) -> None:
        self._calls = iter(calls)
        self.now = 0.0
        self.calls: list[list[str]] = []

    def clock(self) -> float:
        return self.now

    async def nap(self, seconds: float) -> None:
        self.now += seconds

    def put(
        self, identity: Any, drafts: Sequence[Draft], connection: Any, done: Callable[..., None]
    ) -> None:
        self.calls.append([draft.topic for draft in drafts])
        done(next(self._calls))

    async def publish(
        self, identity: Any, drafts: Sequence[Draft], *, connection: Any
    ) -> Sequence[Result]:
        self.calls.append([draft.topic for draft in drafts])
        return next(self._calls)


async def outcome(scripted: Scripted, topics: str) -> list[tuple[str, Result]]:
    drafts = [Draft(topic, "message", b"1", None, None, None) for topic in topics]
    answers: list[tuple[str, Result]] = []
    any_: Any = scripted
    work = publish(any_, any_, drafts, lambda draft, answer: answers.append((draft.topic, answer)))
    if work is not None:
        await work
    return answers


async def test_only_what_the_store_has_not_taken_is_repeated_and_answers_keep_their_order() -> None:
    scripted = Scripted([STORED, AWAY, STORED, TOO_OFTEN, TOO_OFTEN], [STORED], [STORED, STORED])
    assert await outcome(scripted, "abcde") == [(topic, STORED) for topic in "abcde"]
    assert scripted.calls == [["a", "b", "c", "d", "e"], ["b"], ["d", "e"]]
    assert scripted.now == 1.0


@pytest.mark.parametrize("error", [AWAY, ServiceError("unavailable", "the store is away")])
async def test_a_publish_is_given_up_when_the_store_stays_away(error: ServiceError) -> None:
    scripted = Scripted([error], *[[error]] * 1_000)
    assert await outcome(scripted, "a") == [("a", error)]
    assert scripted.now == pytest.approx(PATIENCE)


async def test_waiting_for_the_rate_takes_nothing_from_the_time_of_the_store() -> None:
    waits: list[list[Result]] = [[STORED], [TOO_OFTEN] * 2] * 199
    scripted = Scripted([TOO_OFTEN] * 201, *waits, [STORED], [AWAY], [STORED])
    assert await outcome(scripted, "a" * 201) == [("a", STORED)] * 201
    assert scripted.now > PATIENCE


async def test_a_denied_publish_is_not_repeated() -> None:
    denied = ServiceError("forbidden", "the access rules do not allow this publish")
    scripted = Scripted([STORED, denied])
    assert await outcome(scripted, "ab") == [("a", STORED), ("b", denied)]
    assert scripted.calls == [["a", "b"]]
