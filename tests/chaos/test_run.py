"""A run without a result is no violation."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import pytest

from tests import forked
from tests.chaos import __main__ as program
from tests.chaos.plan import draw
from tests.chaos.run import Stage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The forking process has ended."""
    monkeypatch.setattr(forked, "address", lambda: str(tmp_path / "socket"))


async def test_servers_that_end_with_their_forking_process_break_no_promise(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        with pytest.raises(forked.ForksGone):
            await stage.run(draw(1, "memory"))


def test_the_program_says_that_there_is_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "bundled", lambda: contextlib.nullcontext(tmp_path))
    monkeypatch.setattr(sys, "argv", ["chaos", "--seeds", "1..3", "--topology", "memory"])
    assert program.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("chaos: The process that forks servers and programs")
    assert "Start the command again." in printed.err
