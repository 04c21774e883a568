"""Every stream trace passes, and a wrong trace fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.traces.runner import TraceFailed
from tests.traces.streams import STREAMS, run_stream

if TYPE_CHECKING:
    from pathlib import Path

VALID = sorted(STREAMS.glob("*.json"))
INVALID = sorted((STREAMS / "invalid").glob("*.json"))


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", VALID, ids=_name)
def test_writer_and_reader_do_exactly_what_the_trace_says(path: Path) -> None:
    run_stream(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", INVALID, ids=_name)
def test_the_runner_notices_a_wrong_trace(path: Path) -> None:
    with pytest.raises(TraceFailed):
        run_stream(json.loads(path.read_text(encoding="utf-8")))
