"""Tests do not affect each other, and a skipped one is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


SKIPS = {
    "by a mark": "import pytest\n\n@pytest.mark.skip(reason='needs X')\ndef test_one(): pass\n",
    "in its body": "import pytest\n\ndef test_one(): pytest.skip('needs X')\n",
    "with its file": (
        "import pytest\n\npytest.skip('needs X', allow_module_level=True)\ndef test_one(): pass\n"
    ),
}


def run(folder: Path, tests: str) -> str:
    """Run a file of tests with the configuration of this repository; return what is printed."""
    file = folder / "test_some.py"
    file.write_text(tests, encoding="utf-8")
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
    return ended.stdout


def test_what_a_failed_test_leaves_open_fails_no_later_test(tmp_path: Path) -> None:
    assert "1 failed, 1 passed" in run(tmp_path, TESTS)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, tests may be skipped")
@pytest.mark.parametrize("how", SKIPS)
def test_a_test_that_is_skipped_on_linux_is_a_failure_with_its_reason(
    tmp_path: Path, how: str
) -> None:
    printed = run(tmp_path, SKIPS[how])
    assert "needs X" in printed
    assert "On Linux, no test may be skipped" in printed
    assert "1 failed" in printed or "1 error" in printed


REDIRECTED = """
import logging
from pubsub_server.observe import logs
from pubsub_server.settings.sources import load


def test_that_runs_a_server():
    logs.configure(load({"log_level": "error"}))


def test_that_reads_the_log(caplog, capfd):
    logging.getLogger("pubsub_server.hub").warning("seen")
    assert caplog.messages == ["seen"]
    assert capfd.readouterr().err == ""
"""


def test_a_test_sees_the_log_though_the_server_of_another_has_redirected_it(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, REDIRECTED)


@pytest.mark.parametrize("option", ["skip", "todo"])
def test_a_test_of_node_that_is_skipped_is_a_failure(tmp_path: Path, option: str) -> None:
    file = tmp_path / "some.test.mjs"
    text = f"import {{ test }} from 'node:test';\ntest('one', {{ {option}: true }}, () => {{}});\n"
    file.write_text(text, encoding="utf-8")
    reporter = ROOT / "tests" / "js" / "reporter.mjs"
    # It must not write its outcome into the report of the suite that runs this test.
    environment = {k: v for k, v in os.environ.items() if k != "HANZO_PUBSUB_TEST_REPORT"}
    ended = subprocess.run(
        ["node", "--test", f"--test-reporter={reporter}", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "FAILED one\nNo test may be skipped" in ended.stdout
    assert "0 passed, 1 failed" in ended.stdout
    assert ended.returncode == 1
