"""`python -m scripts.setup`: its messages if something is missing, and interruptions."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from scripts.setup.steps import install

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROOT = Path(__file__).parent.parent.parent
NEEDED = (
    *("scripts/setup", "requirements", "package.json", "package-lock.json", "pyproject.toml"),
    *("server-mock/pyproject.toml", "tests/cluster/kafka.pom.xml"),
)
BOUND = 60

NPM_THAT_INSTALLS = 'mkdir -p node_modules; echo "$@" >> npm-calls'
NPM_THAT_HANGS = "touch npm-began; exec sleep 60"


class Checkout:
    """A copy of the files that the setup reads, in a folder with a space, and a separate PATH."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in NEEDED:
            source, target = ROOT / name, self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        for name in ("sh", "mkdir", "touch", "sleep"):
            (self.programs / name).symlink_to(str(shutil.which(name)))

    def program(self, name: str, script: str) -> None:
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def node(self, version: str, npm: str) -> None:
        self.program("node", f"echo {version}")
        self.program("npm", npm)

    @contextmanager
    def running(self, *parts: str, **env: str) -> Generator[subprocess.Popen[str]]:
        home = {"PATH": str(self.programs), "HOME": str(self.root), **env}
        command = [sys.executable, "-m", "scripts.setup", *parts]
        with subprocess.Popen(
            command, cwd=self.root, env=home, stderr=subprocess.PIPE, encoding="utf-8"
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def set_up(self, *parts: str, **env: str) -> tuple[int, str]:
        with self.running(*parts, **env) as process:
            _, text = process.communicate(timeout=BOUND)
            return process.returncode, text

    @property
    def npm_calls(self) -> int:
        calls = self.root / "npm-calls"
        return len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"{wanted!r} is not in {lines}")


def test_a_folder_with_a_space_is_set_up_once(checkout: Checkout) -> None:
    checkout.node("v20.1.0", NPM_THAT_INSTALLS)
    status, text = checkout.set_up("npm")
    assert (status, checkout.npm_calls) == (0, 1)
    assert "npm packages ready" in text
    assert checkout.set_up("npm") == (0, "")
    assert checkout.npm_calls == 1


def test_packages_that_another_lock_file_names_are_installed_again(checkout: Checkout) -> None:
    checkout.node("v20.1.0", NPM_THAT_INSTALLS)
    checkout.set_up("npm")
    with (checkout.root / "package-lock.json").open("a", encoding="utf-8") as lock:
        lock.write("\n")
    assert checkout.set_up("npm")[0] == 0
    assert checkout.npm_calls == 2


def test_a_moved_checkout_is_set_up_again(checkout: Checkout) -> None:
    checkout.node("v20.1.0", NPM_THAT_INSTALLS)
    checkout.set_up("npm")
    checkout.root = checkout.root.rename(checkout.root.with_name("elsewhere"))
    assert checkout.set_up("npm")[0] == 0
    assert checkout.npm_calls == 2


def test_all_that_is_missing_is_named_in_one_message(checkout: Checkout) -> None:
    # The setup also finds servers in folders outside of PATH.
    programs = [] if Path("/usr/sbin/nginx").exists() else ["nginx"]
    programs += ["bash", "redis", "chromium"]
    parts = ("npm", "bash", "redis", "chromium", "balancers")
    status, text = checkout.set_up(*parts)
    assert status == 1
    assert "Node 20 or later with npm" in text
    assert all(name in text for name in programs)
    assert "sudo apt-get install --no-install-recommends" in text
    assert not (checkout.root / "node_modules").exists()


def test_a_node_that_is_too_old_is_named_with_its_version(checkout: Checkout) -> None:
    checkout.node("v18.20.4", NPM_THAT_INSTALLS)
    status, text = checkout.set_up("npm")
    assert (status, checkout.npm_calls) == (1, 0)
    assert "Node 20 or later" in text
    assert "v18.20.4" in text


@pytest.mark.parametrize("given", ["", "PYTHON=/nowhere/python", "PYTHON=python3.9"])
def test_make_names_a_python_that_is_missing_or_too_old(checkout: Checkout, given: str) -> None:
    shutil.copy(ROOT / "Makefile", checkout.root)
    checkout.program("python3.9", "exit 1")
    make = str(shutil.which("make"))
    done = subprocess.run(
        [make, "test-fast", *([given] if given else [])],
        cwd=checkout.root,
        env={"PATH": str(checkout.programs), "HOME": str(checkout.root)},
        capture_output=True,
        encoding="utf-8",
        timeout=BOUND,
        check=False,
    )
    first, *rest = done.stderr.splitlines()
    assert first.startswith("setup: Python 3.11 or later is needed")
    assert first.endswith("name one with make PYTHON=/path/to/python")
    assert given.removeprefix("PYTHON=") in first
    assert all(line.startswith("make") for line in rest), done.stderr
    assert done.returncode == 2


def test_an_unreachable_registry_is_reported_as_unreachable(checkout: Checkout) -> None:
    says = "echo 'npm error network request failed, ECONNREFUSED'; echo 'loosen the versions'"
    checkout.node("v20.1.0", f"{says}; exit 1")
    status, text = checkout.set_up("npm")
    assert status == 1
    assert "The npm packages cannot be installed (exit 1)" in text
    assert "The network or the package registry is out of reach." in text
    assert "ECONNREFUSED" in text
    assert "loosen" not in text, "the advice is for another problem"


def test_ctrl_c_ends_what_runs_and_the_next_call_goes_on(checkout: Checkout) -> None:
    checkout.node("v20.1.0", NPM_THAT_HANGS)
    for _ in range(2):
        with checkout.running("npm") as process:
            lines_until(process, "npm packages")
            wait_for(checkout.root / "npm-began")
            process.send_signal(signal.SIGINT)
            _, text = process.communicate(timeout=BOUND)
        assert process.returncode == 130
        assert "setup: stopped; run the same command again to continue" in text
        (checkout.root / "npm-began").unlink()
    checkout.node("v20.1.0", NPM_THAT_INSTALLS)
    assert checkout.set_up("npm")[0] == 0
    assert checkout.npm_calls == 1


def wait_for(path: Path) -> None:
    """Wait until a program has created a file; the `timeout` of the test limits it."""
    while not path.exists():
        os.sched_yield()


def test_a_second_set_up_waits_for_the_first(checkout: Checkout) -> None:
    checkout.node("v20.1.0", NPM_THAT_INSTALLS)
    folder = checkout.root / ".setup"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with checkout.running("npm") as process:
            lines_until(process, "waiting for another process that sets up this folder")
            assert checkout.npm_calls == 0
            fcntl.flock(lock, fcntl.LOCK_UN)
            process.communicate(timeout=BOUND)
    assert (process.returncode, checkout.npm_calls) == (0, 1)


def test_the_progress_says_that_a_package_waits_for_another_uv(checkout: Checkout) -> None:
    says = "INFO Waiting to acquire exclusive lock for `pyspark`"
    checkout.node("v20.1.0", f"echo '{says}'; touch npm-began; exec sleep 60")
    with checkout.running("npm") as process:
        lines_until(process, "npm packages waits for another uv")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BOUND)


def test_uv_waits_an_hour_for_another_uv_unless_you_choose_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Mapping[str, str]] = []

    def tool(failure: str, command: object, *, env: Mapping[str, str]) -> None:
        given.append(env)

    monkeypatch.delenv("UV_LOCK_TIMEOUT", raising=False)
    install(cast("Any", tool), "six")
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "5")
    install(cast("Any", tool), "six")
    assert [env["UV_LOCK_TIMEOUT"] for env in given] == ["3600", "5"]


def test_a_headless_shell_that_debian_does_not_have_is_tried_once(checkout: Checkout) -> None:
    checkout.program("chromium", "exit 0")
    checkout.program("apt-get", 'echo "$@" >> "$HOME/apt-calls"; exit 100')
    for _ in range(2):
        assert checkout.set_up("chromium")[0] == 0
    calls = checkout.root / "apt-calls"
    words = calls.read_text(encoding="utf-8").split() if calls.exists() else []
    # Only root installs packages.
    assert words.count("chromium-headless-shell") == (os.geteuid() == 0)
