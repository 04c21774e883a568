"""Install the wheels in empty environments, import them, and print the source of each module.

Usage: `python scripts/check_wheels.py DIST`, where DIST holds one wheel of each distribution.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

REQUIREMENTS = Path(__file__).parent.parent / "requirements"
SERVER_FILES = (
    "pubsub_server/__init__.py",
    "pubsub_server/py.typed",
    "pubsub_server/generated/console/index.html",
    "pubsub_server/generated/console/console.js",
    "pubsub_server/generated/console/console.css",
)
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
SUFFIX = ".exe" if os.name == "nt" else ""
UV = Path(sys.executable).parent / f"uv{SUFFIX}"

# Runs inside the environment under test, isolated from this folder and from PYTHONPATH.
PROBE = """
import importlib, sys, sysconfig
from pathlib import Path
home = Path(sysconfig.get_path("purelib")).resolve()
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    source = Path(module.__file__).resolve().relative_to(home)
    print(f"  import {name:<18} from {source.as_posix()}")
"""


@dataclass(frozen=True)
class Scenario:
    """An environment: the packages to install, the modules to import, the commands to run."""

    name: str
    install: tuple[str, ...]
    imports: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...] = ()


def run(*command: str | Path, cwd: Path, timeout: float = 300) -> None:
    """Run a command, and show its output if it fails.

    Args:
        command: Program and arguments.
        cwd: Folder to run it in.
        timeout: Seconds.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=timeout,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nexit {done.returncode}: {' '.join(map(str, command))}")
    if "-c" in command:
        print(done.stdout, end="")


def inspect(wheel: Path, *, wants: tuple[str, ...]) -> None:
    """Reject a wheel that contains the namespace package or lacks a file."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in wants if name not in names]
    if "hanzoai/__init__.py" in names:
        raise SystemExit(f"{wheel.name} has hanzoai/__init__.py and would hide other packages")
    if missing:
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing)}")
    print(f"{wheel.name}: {len(names)} files, namespace left open")


def try_out(scenario: Scenario, home: Path) -> None:
    """Create the environment, install, import and run."""
    print(f"{scenario.name}:", flush=True)
    venv = home / ".venv"
    python = venv / SCRIPTS / f"python{SUFFIX}"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv, cwd=home)
    pins = ("--constraint", REQUIREMENTS / "constraints.txt")
    run(UV, "pip", "install", "--python", python, *pins, *scenario.install, cwd=home)
    run(python, "-I", "-W", "error", "-c", PROBE, *scenario.imports, cwd=home)
    for name, *arguments in scenario.commands:
        run(venv / SCRIPTS / f"{name}{SUFFIX}", *arguments, cwd=home)
        print(f"  ran    {name} {' '.join(arguments)}")


def one(dist: Path, pattern: str) -> Path:
    """Return the only file that matches the pattern."""
    found = sorted(dist.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{dist}/{pattern}: one file expected, {len(found)} found; `make build`")
    return found[0].resolve()


def main(dist: Path) -> int:
    """Check both wheels in every scenario."""
    sdk = one(dist, "hanzoai_pubsub-*.whl")
    server = one(dist, "hanzoai_pubsub_server-*.whl")
    inspect(
        sdk,
        wants=(
            "hanzoai/pubsub/__init__.py",
            "hanzoai/pubsub/py.typed",
            "hanzo_pubsub_program.py",
            "pyspark_hanzo_pubsub.py",
        ),
    )
    inspect(server, wants=SERVER_FILES)
    neighbours = ("--requirement", str((REQUIREMENTS / "neighbours.txt").resolve()))
    scenarios = (
        Scenario("the SDK alone", (str(sdk),), ("hanzoai.pubsub",)),
        Scenario(
            "the SDK with its command and the server",
            (f"hanzoai.pubsub[cli] @ {sdk.as_uri()}", str(server)),
            ("hanzoai.pubsub", "pubsub_server"),
            (("hanzo-pubsub", "--help"), ("hanzo-pubsub", "serve", "--help")),
        ),
        Scenario(
            "the SDK beside its neighbours",
            (str(sdk), *neighbours),
            ("hanzoai.pubsub", "hanzoai"),
        ),
        Scenario(
            "the neighbours imported first",
            (str(sdk), *neighbours),
            ("hanzoai", "hanzoai.pubsub"),
        ),
    )
    for scenario in scenarios:
        with TemporaryDirectory() as home:
            try_out(scenario, Path(home))
    print(f"{len(scenarios)} environments, both wheels install and import")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
