"""Every trace passes, the traces fire every row of the lifecycle, and a wrong trace fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.generated.lifecycle import TABLE
from hanzoai.pubsub.session.lifecycle import Lifecycle
from tests.traces.recorder import Log
from tests.traces.runner import TRACES, TraceFailed, load, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.lifecycle import Row
    from hanzoai.pubsub.generated.wire import Message
    from hanzoai.pubsub.session.events import SessionEvent
    from tests.traces.effects import Effect

VALID = sorted(TRACES.glob("*.json"))
BOUNDS = sorted((TRACES / "bounds").glob("*.json"))
INVALID = sorted((TRACES / "invalid").glob("*.json"))


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", [*VALID, *BOUNDS], ids=_name)
def test_the_session_does_exactly_what_the_trace_says(path: Path) -> None:
    run(load(path))


@pytest.mark.parametrize("path", INVALID, ids=_name)
def test_the_runner_notices_a_wrong_trace(path: Path) -> None:
    with pytest.raises(TraceFailed):
        run(load(path))


def test_all_parts_of_an_answer_say_whether_it_has_many_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deliver, gap, take = Log.deliver, Log.gap, Log.take
    step: list[tuple[int, bool]] = []
    steps: list[list[tuple[int, bool]]] = []

    def note_messages(
        log: Log, sub: int, messages: Sequence[Message], many: bool = False, /
    ) -> None:
        step.extend((sub, many) for _ in messages)
        deliver(log, sub, messages, many)

    def note_gap(log: Log, sub: int, missing: Gap, many: bool = False, /) -> None:
        if many:
            step.append((sub, True))
        gap(log, sub, missing, many)

    def note_end(log: Log) -> list[Effect]:
        steps.append(step.copy())
        step.clear()
        return take(log)

    for name, note in (("deliver", note_messages), ("gap", note_gap), ("take", note_end)):
        monkeypatch.setattr(Log, name, note)
    run(load(TRACES / "a-hole-inside-a-replay.json"))
    assert [(1, True)] * 3 in steps  # a message, the gap, a message
    assert all(len(set(parts)) <= 1 for parts in steps)


def test_every_row_of_the_lifecycle_is_fired_by_some_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = Lifecycle._take, set[int]()

    def note(lifecycle: Lifecycle, row: Row, event: SessionEvent) -> None:
        taken.add(id(row))
        take(lifecycle, row, event)

    monkeypatch.setattr(Lifecycle, "_take", note)
    for path in VALID:
        run(load(path))
    left_out = [
        (state, name, n)
        for state, cells in TABLE.items()
        for name, rows in cells.items()
        for n, row in enumerate(rows)
        if id(row) not in taken
    ]
    assert left_out == []
