"""`python -m scripts.run_tests`: concurrent suites, their failures, and its exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scripts import run_tests
from scripts.run_tests import Running, Suite, load, report, run, suites, write_durations
from tests.slow_tests import DURATIONS, MISSING, missing

ROOT = Path(__file__).parent.parent.parent
SEED = 7


def suite(name: str, *outcomes: str, status: int = 0, says: str = "") -> Suite:
    """Return a suite that reports these outcomes."""
    lines = [json.dumps({"collected": len(outcomes)})]
    lines += [
        json.dumps({"test": f"{name}-{n}", "seconds": n / 10, "outcome": outcome})
        for n, outcome in enumerate(outcomes)
    ]
    text = "".join(f"{line}\n" for line in lines)
    code = (
        "import os, pathlib, sys\n"
        f"pathlib.Path(os.environ['HANZO_PUBSUB_TEST_REPORT']).write_text({text!r})\n"
        f"print({says!r}, os.environ['HANZO_PUBSUB_TEST_SEED'])\n"
        f"sys.exit({status})"
    )
    return Suite(name, (sys.executable, "-c", code))


def test_suites_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = [suite("a", "passed", "passed"), suite("b", "passed"), suite("c", "skipped")]
    ended = run(several, tmp_path, SEED)
    assert report(ended, 3.0, SEED, brief=False) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1] == "3 passed, 0 failed"
    assert "seed 7" in text
    assert "0.1 s  a  a-1" in text


def test_a_failure_is_shown_with_what_its_suite_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run([suite("a", "passed", "failed", status=1, says="why")], tmp_path, SEED)
    assert report(ended, 3.0, SEED, brief=True) == 1
    text = capsys.readouterr().out
    assert "FAILED a-1" in text
    assert "why 7" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize(
    "marks",
    [
        ("== ERRORS ==", "== FAILURES =="),
        ("== FAILURES ==", "Fatal Python error: Aborted"),
        ("Fatal Python error: Aborted", "== ERRORS =="),
    ],
)
def test_what_is_shown_of_a_suite_begins_with_its_first_failure(
    tmp_path: Path, marks: tuple[str, str]
) -> None:
    first, second = marks
    says = f"progress\n{first}\nwhy\n{second}\nthe rest"
    (ended,) = run([suite("a", "failed", status=1, says=says)], tmp_path, SEED)
    assert ended.failures() == f"{first}\nwhy\n{second}\nthe rest {SEED}\n"


def test_a_suite_that_ends_without_a_report_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run([suite("a", status=3, says="broken before it began")], tmp_path, SEED)
    assert report(ended, 3.0, SEED, brief=True) == 1
    text = capsys.readouterr().out
    assert "a, exit 3" in text
    assert "broken before it began" in text
    assert text.splitlines()[-1] == "0 passed, 1 failed"


def test_a_suite_without_tests_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run([suite("a", says="nothing found"), suite("b", "passed")], tmp_path, SEED)
    assert report(ended, 3.0, SEED, brief=True) == 1
    text = capsys.readouterr().out
    assert "a, exit 0, no test" in text
    assert "nothing found" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"


def test_a_run_without_suites_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([], 3.0, SEED, brief=True) == 1
    assert "no suite ran" in capsys.readouterr().out


def test_a_name_that_its_file_does_not_have_is_missing() -> None:
    collected = ["a.py::test_one", "a.py::test_two[x]"]
    names = ["a.py::test_one", "a.py::test_two[y]", "b.py::test_one"]
    assert missing(names, collected) == ["a.py::test_two[y]"]


def test_the_slow_tests_exist(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[MISSING] == [], f"remove them from {DURATIONS}"


def measured(folder: Path, seconds: dict[str, float], status: int = 0) -> list[Running]:
    """Return the results of a suite of pytest with these durations."""
    lines = [
        json.dumps({"test": name, "seconds": took, "outcome": "passed"})
        for name, took in seconds.items()
    ]
    text = "".join(f"{line}\n" for line in lines)
    code = (
        "import os, pathlib, sys\n"
        f"pathlib.Path(os.environ['HANZO_PUBSUB_TEST_REPORT']).write_text({text!r})\n"
        f"sys.exit({status})"
    )
    return run([Suite("pytest", (sys.executable, "-c", code))], folder, SEED)


def test_durations_of_files_that_ran_are_replaced_and_those_of_deleted_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = "tests/repository/test_run_tests.py"
    other = "tests/repository/test_setup.py"
    file = tmp_path / "durations.json"
    kept = {f"{here}::old": 3.0, f"{other}::kept": 2.0, "tests/deleted.py::gone": 9.0}
    file.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(run_tests, "DURATIONS", file)
    seconds = {f"{here}::slow": 1.234, f"{here}::fast": 0.4}
    write_durations(measured(tmp_path, seconds))
    assert json.loads(file.read_text("utf-8")) == {f"{here}::slow": 1.2, f"{other}::kept": 2.0}


def test_a_run_with_a_failure_leaves_the_durations_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "durations.json"
    file.write_text('{"a.py::x": 1.0}', encoding="utf-8")
    monkeypatch.setattr(run_tests, "DURATIONS", file)
    write_durations(measured(tmp_path, {"a.py::y": 2.0}, status=1))
    assert file.read_text(encoding="utf-8") == '{"a.py::x": 1.0}'
    assert "after a failure, durations.json stays as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    "selection", [["fast"], ["python", "--only", "tests/cli"], ["python", "--repeat", "2"]]
)
def test_durations_of_a_part_of_the_tests_are_not_stored(
    selection: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(*_: object) -> list[Running]:
        raise AssertionError("tests ran")

    monkeypatch.setattr(run_tests, "run", ran)
    with pytest.raises(SystemExit):
        run_tests.main([*selection, "--write-durations"])
    assert "--write-durations needs whole groups" in capsys.readouterr().err


def test_every_folder_of_tests_belongs_to_a_group() -> None:
    everything = suites(["all"], SEED, ())
    names = {each.name for each in everything} - {"newest"}
    assert names == {"pytest", "spark-cluster", "spark", "js", "package", "browser", "fuzz"}
    by_pytest = [each.command for each in everything if "pytest" in each.command]
    paths = [Path(part) for command in by_pytest for part in command if part.startswith("tests/")]
    chosen = {path.parts[1] for path in paths}
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert {path.relative_to(ROOT / "tests").parts[0] for path in folders} == chosen


def wait_for_the_end_of(pid: str) -> None:
    """Wait until the process is gone, or is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(OSError):
        while " Z " not in stat.read_text(encoding="utf-8"):
            os.sched_yield()


def test_ctrl_c_ends_the_suites_too(tmp_path: Path) -> None:
    began = tmp_path / "began"
    hang = (
        "import os, pathlib, signal\n"
        f"pathlib.Path({str(began)!r}).write_text(str(os.getpid()))\n"
        "signal.pause()"
    )
    code = (
        "import sys, scripts.run_tests as runner\n"
        f"suite = runner.Suite('hangs', (sys.executable, '-c', {hang!r}))\n"
        "runner.suites = lambda *_: [suite]\n"
        "sys.exit(runner.main([]))"
    )
    with subprocess.Popen(
        (sys.executable, "-c", code), cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        while not (began.exists() and began.read_text(encoding="utf-8")):
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "tests: stopped" in text
    wait_for_the_end_of(began.read_text(encoding="utf-8"))


def test_a_signal_that_comes_when_the_program_has_just_ended_does_not_change_its_code() -> None:
    ends = (sys.executable, "-c", "raise SystemExit(3)")
    code = (
        "import os, signal\n"
        "from scripts import reaper\n"
        "real = os.waitpid\n"
        "def waitpid(pid, options):\n"
        "    if not options:\n"
        "        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(pid, options)\n"
        "os.waitpid = waitpid\n"
        f"raise SystemExit(reaper.run({ends!r}))"
    )
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr.decode()


def test_a_process_that_ends_after_the_command_is_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    later = (sys.executable, "-c", f"open({str(fifo)!r}).read()")
    ends = (sys.executable, "-c", f"import subprocess; subprocess.Popen({later!r})")
    code = (
        "import os, time\n"
        "from scripts import reaper\n"
        "time.monotonic = lambda: 0.0\n"
        "def sleep(seconds):\n"
        "    time.sleep = lambda seconds: os.sched_yield()\n"
        f"    open({str(fifo)!r}, 'w').close()\n"
        "time.sleep = sleep\n"
        f"reaper.run({ends!r})\n"
        "os.waitpid(-1, 0)"
    )
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.stderr.decode().splitlines()[-1].startswith("ChildProcessError")


def test_what_a_suite_leaves_running_is_ended_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = tmp_path / "pid"
    left = (
        "import os, pathlib, signal\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
        "signal.pause()  # left behind"
    )
    code = (
        "import os, pathlib, subprocess, sys\n"
        f"subprocess.Popen((sys.executable, '-c', {left!r}), start_new_session=True)\n"
        f"while not pathlib.Path({str(pid)!r}).exists(): os.sched_yield()"
    )
    run([Suite("careless", (sys.executable, "-c", code))], tmp_path, SEED)
    assert "killed a process that a test left running" in capsys.readouterr().out
    wait_for_the_end_of(pid.read_text(encoding="utf-8"))


def children() -> set[str]:
    file = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(file.read_text(encoding="utf-8").split())


def test_load_ends_with_its_block() -> None:
    # Earlier tests of this process may have left a JVM running for later ones.
    before = children()
    with load(1):
        busy = children() - before
        assert busy
    assert not children() & busy


def test_the_cpu_time_of_a_suite_includes_what_its_programs_leave(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    # The shell in between ends long before the program, which becomes an orphan.
    script = (
        f"pid=$({shlex.join((sys.executable, '-c', busy))} >&2 & echo $!)\n"
        "while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
    )
    (running,) = run([Suite("orphans", ("sh", "-c", script))], tmp_path, SEED)
    assert running.outcome.status == 0
    assert running.outcome.cpu > 0.3
