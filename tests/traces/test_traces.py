"""Every trace passes, the traces fire every row of the lifecycle, and a wrong trace fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.generated.lifecycle import TABLE
from tests.traces.runner import TRACES, TraceFailed, load, run

if TYPE_CHECKING:
    from pathlib import Path

VALID = sorted(TRACES.glob("*.json"))
INVALID = sorted((TRACES / "invalid").glob("*.json"))


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", VALID, ids=_name)
def test_the_session_does_exactly_what_the_trace_says(path: Path) -> None:
    run(load(path))


@pytest.mark.parametrize("path", INVALID, ids=_name)
def test_the_runner_notices_a_wrong_trace(path: Path) -> None:
    with pytest.raises(TraceFailed):
        run(load(path))


def test_every_row_of_the_lifecycle_is_fired_by_some_trace() -> None:
    fired = set().union(*(run(load(path)) for path in VALID))
    rows = {
        (state, name, n)
        for state, cells in TABLE.items()
        for name, rows in cells.items()
        for n in range(len(rows))
    }
    assert sorted(rows - fired) == []
