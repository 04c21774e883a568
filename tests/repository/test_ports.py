"""The ports of nodes that stop and start again remain reserved by one test process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests import ports

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
RANGE = range(20_000, 20_064)
PICK = """
from tests import ports
ports.BELOW_OUTGOING = range(20_000, 20_064)
print(*[ports.free_port() for _ in range(24)])
"""


def test_a_port_that_a_process_has_picked_is_not_picked_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another suite on this machine may have reserved most of these few ports.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(ports, "_reservations", cache(ports._reservations.__wrapped__))
    monkeypatch.setattr(ports, "BELOW_OUTGOING", RANGE)
    ours = {ports.free_port() for _ in range(24)}
    command = [sys.executable, "-c", PICK]
    picked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout
    theirs = {int(port) for port in picked.split()}
    assert len(ours) == len(theirs) == 24
    assert not ours & theirs
