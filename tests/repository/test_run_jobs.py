"""The steps of the workflows can be run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import run_jobs
from scripts.run_jobs import Step

if TYPE_CHECKING:
    from pathlib import Path


def test_every_step_of_every_job_runs_here_or_has_a_reason_not_to() -> None:
    jobs = run_jobs.jobs()
    assert {"checks:check", "checks:test", "checks:fast", "checks:lowest", "release:build"} <= {
        *jobs
    }
    for name, steps in jobs.items():
        assert steps, name
        for step in steps:
            assert step.command or step.reason, (name, step.name)
    # Apart from actions, only jobs that publish are skipped.
    needs = {s.reason for each in jobs.values() for s in each if s.command and s.reason}
    assert needs == {"the job publishes"}


def test_no_step_of_a_job_that_publishes_runs() -> None:
    jobs = run_jobs.jobs()
    for name in ("release:pypi", "release:npm", "release:notes"):
        assert all(step.reason for step in jobs[name]), name
    publishing = ("npm publish", "gh release", "pypi-publish")
    for name, steps in jobs.items():
        for step in steps:
            if any(word in step.command for word in publishing):
                assert step.reason == "the job publishes", name


def test_a_step_without_a_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("jobs: { b: { steps: [{ name: c }] } }")
    with pytest.raises(ValueError, match=r"a\.yml: b: step 1 has neither"):
        run_jobs.jobs(tmp_path)


def test_a_step_ends_at_the_first_command_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Step("makes a file", "false\ntouch file", "", {})
    assert not run_jobs.run(failing, tmp_path)
    assert not (tmp_path / "file").exists()
    assert "failed 1  makes a file" in capsys.readouterr().out


def test_a_step_has_its_variables_and_one_line_of_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Step("writes", 'echo "$WORD" > file', "", {"WORD": "hello"})
    assert run_jobs.run(step, tmp_path)
    assert (tmp_path / "file").read_text() == "hello\n"
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("ok       writes (")


def test_a_skipped_step_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_jobs.run(Step("actions/checkout@v5", "", "an action", {}), tmp_path)
    assert capsys.readouterr().out == "skipped  actions/checkout@v5 (an action)\n"


def test_a_job_runs_after_one_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "checks:first": [Step("fails", "false", "", {})],
        "checks:second": [Step("works", "true", "", {})],
    }
    monkeypatch.setattr(run_jobs, "jobs", lambda: found)
    assert run_jobs.main(["--here", *found]) == 1
    printed = capsys.readouterr()
    assert "ok       works" in printed.out
    assert printed.err == "failed: checks:first\n"


def test_an_unknown_job_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_jobs.main(["checks:none"]) == 2
    assert "there is no job checks:none; jobs: checks:check" in capsys.readouterr().err
