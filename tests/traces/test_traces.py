"""Every trace passes, the traces fire every row of the lifecycle, and a wrong trace fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.generated.lifecycle import TABLE
from hanzoai.pubsub.session.lifecycle import Lifecycle
from tests.traces.runner import TRACES, TraceFailed, load, run

if TYPE_CHECKING:
    from pathlib import Path

    from hanzoai.pubsub.generated.lifecycle import Row
    from hanzoai.pubsub.session.events import SessionEvent

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
