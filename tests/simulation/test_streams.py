"""Random runs of one stream in virtual time: a view is a prefix of the answer or stale.

`make soak` runs 10,000 seeds, which tests/simulation/test_languages.py compares between languages.
"""

from __future__ import annotations

import heapq
import os
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.streams.reading import Incoming, Reading
from hanzoai.pubsub.streams.writing import Writing
from tests.simulation.prng import Random
from tests.simulation.streams import simulate_stream

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 10_000 if "HANZO_PUBSUB_SOAK" in os.environ else 50
BLOCK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_reader_of_a_stream_ends_with_the_whole_answer(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate_stream(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_seeds_of_streams_exercise_what_they_are_meant_to() -> None:
    runs = [simulate_stream(seed) for seed in range(40)]
    assert sum(run.takeovers for run in runs) > 10
    assert sum(reader.gaps for run in runs for reader in run.readers) > 2
    assert sum(run.plain for run in runs) > 5
    assert sum(run.published for run in runs) > 1_000


def test_one_seed_is_one_life_of_a_stream() -> None:
    assert simulate_stream(7).digest() == simulate_stream(7).digest()
    assert simulate_stream(7).digest() != simulate_stream(8).digest()


class Topic:
    """Streams on one topic in virtual time, and all frames that their writers publish."""

    def __init__(self, streams: int, tokens: int) -> None:
        self.log: list[tuple[str, Incoming]] = []
        self._random = Random(3)
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        for n in range(streams):
            writing = Writing(f"s{n}", 0, f"w{n}")
            self._later(self._random.below(1_000), self._begin(writing, tokens))
        while self._queue:
            at, _, call = heapq.heappop(self._queue)
            call(at)

    def _later(self, at: int, call: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, call))

    def _begin(self, writing: Writing, tokens: int) -> Callable[[int], None]:
        def begin(at: int) -> None:
            self._perform(writing, writing.open(at), at)
            write(at)

        def write(at: int, left: int = tokens) -> None:
            if left == 0:
                self._perform(writing, writing.finish("complete", {}, at), at)
                return
            self._perform(writing, writing.write("word ", at), at)
            long = self._random.chance(5)
            pause = self._random.between(2_000, 15_000) if long else 20
            self._later(at + pause, lambda at: write(at, left - 1))

        return begin

    def _perform(self, writing: Writing, effects: list[Any], at: int) -> None:
        for effect in effects:
            if effect["kind"] == "publish":
                message = Incoming(type=effect["type"], data=effect["data"], sender="svc")
                self.log.append((writing.stream, message))
                self._later(at + 5, lambda at: self._perform(writing, writing.sent(at), at))
        due = writing.due
        if due is not None:
            self._later(due, lambda at: self._tick(writing, at))

    def _tick(self, writing: Writing, at: int) -> None:
        if writing.due is not None and at >= writing.due:
            self._perform(writing, writing.tick(at), at)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_reader_that_joins_at_any_message_has_the_answer_at_once(streams: int) -> None:
    log = Topic(streams, 300).log
    assert len(log) > 150 * streams
    for joined in range(1, len(log) + 1):
        retained = [message for _, message in log[max(0, joined - 100) : joined]]
        for stream in {stream for stream, _ in log[max(0, joined - 50) : joined]}:
            reading = Reading(stream)
            reading.begin(retained, 0)
            assert reading.based
            assert not reading.stale
