"""`pytest -p tests.dealing --processes N`: each test once, groups together, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
BOUND = 60

# Two files make two groups. Each process waits until another one runs a test, too.
TOGETHER = """
import os, pathlib, pytest

HERE = pathlib.Path(__file__).parent

@pytest.mark.parametrize("number", range(3))
def test_each(number, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    with (HERE / "ran").open("a") as ran:
        ran.write(f"{pathlib.Path(__file__).stem} {number} {os.getpid()} {base}\\n")
    while len({line.split()[2] for line in (HERE / "ran").read_text().splitlines()}) < 2:
        os.sched_yield()
"""

DIES = """
import os, signal

def test_before():
    pass

def test_that_ends_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after():
    pass
"""

FAILS = """
def test_that_fails():
    print("said by the test")
    assert 1 == 2, "why"
"""

SESSION = """
import pytest

@pytest.fixture(scope="session")
def broken():
    yield
    raise ValueError("at the very end")

def test_with_it(broken):
    pass
"""

HANGS = """
import pathlib, pytest, signal

HERE = pathlib.Path(__file__).parent

@pytest.fixture(scope="session")
def tidy():
    yield
    (HERE / "tidied").touch()

def test_that_hangs(tidy):
    (HERE / "hangs").touch()
    signal.pause()
"""


def command(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    options = ("-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder))
    plugins = ("no:cacheprovider", "tests.conftest", "tests.reporting", "tests.dealing")
    return [
        *(sys.executable, "-m", "pytest", *options, "--processes", "2"),
        *(word for name in plugins for word in ("-p", name)),
        *(str(folder / f"test_{name}.py") for name in files),
    ]


def environment(folder: Path) -> Mapping[str, str]:
    return {**os.environ, "HANZO_PUBSUB_TEST_REPORT": str(folder / "report")}


def run(folder: Path, **files: str) -> tuple[int, str, list[dict[str, Any]]]:
    """The exit status, the output and the report of such files of tests."""
    done = subprocess.run(
        command(folder, **files),
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND,
        check=False,
    )
    lines = (folder / "report").read_text(encoding="utf-8").splitlines()
    return done.returncode, done.stdout, [json.loads(line) for line in lines]


def test_each_test_runs_once_and_the_tests_of_a_group_in_one_process(tmp_path: Path) -> None:
    status, said, report = run(tmp_path, one=TOGETHER, two=TOGETHER)
    assert status == 0, said
    assert "6 passed" in said
    assert report[0] == {"collected": 6}
    ran = [line.split() for line in (tmp_path / "ran").read_text(encoding="utf-8").splitlines()]
    assert sorted(f"{file} {number}" for file, number, *_ in ran) == [
        f"test_{file} {number}" for file in ("one", "two") for number in range(3)
    ]
    assert len({(file, pid, base) for file, _, pid, base in ran}) == 2
    assert len({base for *_, base in ran}) == 2


def test_a_failure_is_reported_with_what_the_test_printed(tmp_path: Path) -> None:
    status, said, report = run(tmp_path, fails=FAILS, one=FAILS.replace("1 == 2", "True"))
    assert status == 1
    assert "AssertionError: why" in said
    assert "said by the test" in said
    assert "1 failed, 1 passed" in said
    assert sorted(each["outcome"] for each in report[1:]) == ["failed", "passed"]


def test_a_process_that_dies_fails_its_test_and_another_one_runs_the_rest(tmp_path: Path) -> None:
    status, said, report = run(tmp_path, dies=DIES, one="def test_one(): pass")
    assert status == 1
    assert "The process ended with -9 while it ran this test." in said
    assert "3 passed, 1 error" in said
    failed = [each["test"] for each in report[1:] if each["outcome"] == "failed"]
    assert [name.rpartition("::")[2] for name in failed] == ["test_that_ends_its_process"]


def test_a_fixture_of_the_session_that_fails_at_the_end_is_no_success(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, session=SESSION)
    assert status not in (0, 1), said
    assert "at the very end" in said


def test_ctrl_c_ends_the_processes_and_their_fixtures(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, hangs=HANGS),
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        while not (tmp_path / "hangs").exists():
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 2, said
    assert (tmp_path / "tidied").exists()
