"""Leftovers of a failed test do not fail another test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import asyncio
import gc


async def test_that_fails_with_a_connection_open():
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert not server.is_serving()


def test_that_collects_garbage():
    gc.collect()
"""


def test_what_a_failed_test_leaves_open_fails_no_later_test(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text(TESTS, encoding="utf-8")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")),
            *("-p", "no:cacheprovider", "-p", "tests.conftest", str(file)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout
