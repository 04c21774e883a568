"""The parts that a setup installs: Python packages, npm packages, system programs, Kafka."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .running import SetupError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .running import Step, Tool

Command = list["str | Path"]

ROOT = Path(__file__).parent.parent.parent
REQUIREMENTS = ROOT / "requirements"
PINS = REQUIREMENTS / "constraints.txt"
VENV = ROOT / ".venv"
OLDEST_NODE = 20
NEWEST_MINOR = 14
"""Minor version of the newest Python 3 that the packages are tested on."""

SERVERS = ("/usr/sbin", "/usr/local/sbin")
"""Folders in which Debian installs servers; not on every user's PATH."""


def find(*programs: str) -> str | None:
    """Return the path of the first of these programs that is installed."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SERVERS))
    return next((found for name in programs if (found := shutil.which(name, path=path))), None)


def downloads(variable: str, usual: Path, name: str) -> dict[str, str]:
    """Set a tool's download folder: below this checkout if your home is read-only."""
    if variable in os.environ:
        return {}
    place = usual
    while not place.exists():
        place = place.parent
    return {} if os.access(place, os.W_OK) else {variable: str(ROOT / ".cache" / name)}


class Stamp:
    """Marks a folder as complete, and records its inputs and its place.

    A folder without a stamp may be incomplete. The stamp contains the path and the interpreter,
    because an environment that was moved or copied would run the programs at its old path.
    """

    def __init__(self, file: Path, *inputs: Path) -> None:
        digest = hashlib.sha256()
        for path in inputs:
            digest.update(path.read_bytes())
        self._file = file
        place = f"{file}, Python {platform.python_version()}, {platform.machine()}"
        self._wanted = {"place": place, "inputs": digest.hexdigest()}

    @cached_property
    def _found(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    @property
    def current(self) -> bool:
        """Whether the folder is complete for the current inputs."""
        return self._found == self._wanted

    @property
    def usable(self) -> bool:
        """Whether the folder was complete before, at this place."""
        return self._found.get("place") == self._wanted["place"]

    def remove(self) -> None:
        """Mark the folder as possibly incomplete."""
        self._file.unlink(missing_ok=True)

    def write(self) -> None:
        """Mark the folder as complete."""
        self._file.write_text(json.dumps(self._wanted), encoding="utf-8")


class PythonPackages:
    """`.venv/`: the pinned packages of `requirements/dev.in`, and both distributions."""

    name = "Python packages"

    def __init__(self) -> None:
        projects = (ROOT / "pyproject.toml", ROOT / "server-mock" / "pyproject.toml")
        self._stamp = Stamp(VENV / ".ready", PINS, REQUIREMENTS / "dev.in", *projects)
        self._phase = ""

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        if all(find_spec(name) for name in ("ensurepip", "venv")):
            return []
        return ["python3-venv (the modules venv and ensurepip of your Python)"]

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._stamp.current

    def run(self, tool: Tool) -> None:
        """Create or update the environment."""
        usable = self._stamp.usable
        self._stamp.remove()
        if not usable:
            self._phase = "new environment"
            command: Command = [sys.executable, "-m", "venv", "--clear", VENV]
            tool("The Python environment .venv/ cannot be made", command)
            self._phase = "installer"
            command = [VENV / "bin" / "python", "-m", "pip", "install", "--retries", "2"]
            command += ["--constraint", PINS, "uv"]
            tool("uv cannot be installed", command, env=_python_env())
        self._phase = "download and install"
        install(tool, "--requirement", REQUIREMENTS / "dev.in")
        self._phase = "this repository"
        install(tool, "--no-build-isolation", "-e", ROOT, "-e", ROOT / "server-mock")
        self._stamp.write()

    def progress(self) -> str:
        """The current phase, and the number of installed packages."""
        count = sum(1 for _ in VENV.glob("lib/python3.*/site-packages/*.dist-info"))
        if self._phase == "download and install" and count > 5:
            total = sum("==" in line for line in PINS.read_text(encoding="utf-8").splitlines())
            return counted(count, total)
        return self._phase


class MorePackages:
    """In `.venv/`: the packages of another requirements file, for the targets that use it.

    Args:
        file: Name of the file below `requirements/`, without the suffix.
    """

    def __init__(self, file: str) -> None:
        self.name = f"Python packages ({file})"
        self._file = REQUIREMENTS / f"{file}.in"
        self._stamp = Stamp(VENV / f".{file}", PINS, self._file)

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._stamp.current

    def run(self, tool: Tool) -> None:
        """Install the packages."""
        install(tool, "--requirement", self._file)
        self._stamp.write()

    def progress(self) -> str:
        """No progress is known."""
        return ""


class NewestPython:
    """`.venv/newest/`: packages for the server tests, on the newest Python of this machine.

    Skipped if no Python is newer than the one of `.venv/`.
    """

    name = "packages on the newest Python"

    def __init__(self) -> None:
        self._folder = VENV / "newest"
        projects = (ROOT / "pyproject.toml", ROOT / "server-mock" / "pyproject.toml")
        needed = REQUIREMENTS / "newest.in"
        self._needed = needed
        self._stamp = Stamp(self._folder / ".ready", PINS, needed, *projects)

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    @cached_property
    def _interpreter(self) -> Path | None:
        found = [
            Path(path)
            for minor in range(sys.version_info.minor + 1, NEWEST_MINOR + 1)
            for path in (find(f"python3.{minor}"), *sorted(_pyenv(minor)))
            if path is not None and _runs(path, minor)
        ]
        return found[-1] if found else None

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._stamp.current or self._interpreter is None

    def run(self, tool: Tool) -> None:
        """Create the environment from scratch."""
        self._stamp.remove()
        uv, python = VENV / "bin" / "uv", self._folder / "bin" / "python"
        command: Command = [uv, "venv", "--quiet", "--clear", "--python", str(self._interpreter)]
        failure = f"An environment on {self._interpreter} cannot be made"
        tool(failure, [*command, self._folder], env=_python_env())
        command = [uv, "pip", "install", "--verbose", "--python", python, "--constraint", PINS]
        command += ["--requirement", self._needed, "-e", f"{ROOT}[cli,otel,signed,speed]"]
        command += ["-e", f"{ROOT / 'server-mock'}[kafka,otel,workers]"]
        tool("The Python packages cannot be installed", command, env=_python_env())
        compile_tests(tool, python, "tests/server")
        self._stamp.write()

    def progress(self) -> str:
        """The number of installed packages."""
        count = sum(1 for _ in self._folder.glob("lib/python3.*/site-packages/*.dist-info"))
        return f"{count} packages" if count else ""


def _pyenv(minor: int) -> list[str]:
    """Return the interpreters of pyenv; its programs on PATH run only the selected versions."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        return [str(path) for path in root.glob(f"versions/3.{minor}.*/bin/python3.{minor}")]
    except PermissionError:
        # Your home may belong to another user, for example after `su`.
        return []


def _runs(path: str, minor: int) -> bool:
    code = f"import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    try:
        return subprocess.run([path, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _python_env() -> dict[str, str]:
    """Variables for pip and uv: one index, the system's certificates, a writable cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    env = {"UV_SYSTEM_CERTS": "true", **downloads("UV_CACHE_DIR", cache / "uv", "uv")}
    # By default, uv fails if another uv builds the same package for more than five minutes.
    env["UV_LOCK_TIMEOUT"] = os.environ.get("UV_LOCK_TIMEOUT", "3600")
    # With --verbose, uv then logs only that it waits for a lock.
    env["RUST_LOG"] = "uv_fs=info"
    if index := os.environ.get("PIP_INDEX_URL"):
        env.setdefault("UV_DEFAULT_INDEX", os.environ.get("UV_DEFAULT_INDEX", index))
    return env


def install(tool: Tool, *arguments: str | Path) -> None:
    """Install Python packages into `.venv/`, at the pinned versions."""
    command: Command = [VENV / "bin" / "uv", "pip", "install", "--verbose"]
    command += ["--python", VENV / "bin" / "python", "--constraint", PINS, *arguments]
    tool("The Python packages cannot be installed", command, env=_python_env())


class NpmPackages:
    """`node_modules/` of a folder, with the versions of its lock file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._modules = folder / "node_modules"
        files = (folder / "package.json", folder / "package-lock.json")
        self._stamp = Stamp(self._modules / ".ready", *files)

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        node = find("node")
        if node is None or find("npm") is None:
            return [f"Node {OLDEST_NODE} or later with npm (nodejs.org, or a version manager)"]
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
        major = re.match(r"v(\d+)", version.stdout)
        if major is None or int(major[1]) < OLDEST_NODE:
            found = version.stdout.strip() or "something that does not say its version"
            return [f"Node {OLDEST_NODE} or later ({node} is {found})"]
        return []

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._stamp.current

    def run(self, tool: Tool) -> None:
        """Install the packages from scratch: `npm ci` removes existing ones."""
        self._stamp.remove()
        # By default, npm waits several minutes for a registry that it cannot reach.
        command: Command = ["npm", "ci", "--prefix", self._folder, "--loglevel", "error"]
        command += ["--fetch-retries=3", "--fetch-retry-mintimeout=1000"]
        command += ["--fetch-retry-maxtimeout=8000"]
        env = downloads("npm_config_cache", Path.home() / ".npm", "npm")
        tool("The npm packages cannot be installed", command, env=env)
        self._stamp.write()

    @cached_property
    def _total(self) -> int:
        lock = json.loads((self._folder / "package-lock.json").read_text(encoding="utf-8"))
        return sum(
            bool(name) and not entry.get("optional") for name, entry in lock["packages"].items()
        )

    def progress(self) -> str:
        """The number of installed packages."""
        count = sum(1 for _ in self._modules.glob("*/package.json"))
        count += sum(1 for _ in self._modules.glob("@*/*/package.json"))
        return counted(count, max(count, self._total)) if count else "download"


PROGRAMS = {
    "bash": (("bash",), "bash"),
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "chromium"),
    "firefox": (("firefox-esr", "firefox"), "firefox-esr"),
    "webkit": (("WebKitWebDriver",), "webkit2gtk-driver"),
    "xvfb": (("Xvfb",), "xvfb"),
    "redis": (("redis-server",), "redis-server"),
    "haproxy": (("haproxy",), "haproxy"),
    "nginx": (("nginx",), "nginx-light"),
    "java": (("java",), "default-jre-headless"),
    "maven": (("mvn",), "maven"),
}
"""By name: alternative programs, one of which is required, and the Debian package."""


class SystemPrograms:
    """Programs from Debian packages; skipped if PATH has them."""

    name = "system packages"

    def __init__(self, names: Sequence[str]) -> None:
        self._absent = [name for name in names if not find(*PROGRAMS[name][0])]
        self._packages = [PROGRAMS[name][1] for name in self._absent]
        self._percent = ""

    def missing(self) -> list[str]:
        """Programs that are missing and that this step cannot install."""
        if not self._absent or (os.geteuid() == 0 and find("apt-get")):
            return []
        command = f"sudo apt-get install --no-install-recommends {' '.join(self._packages)}"
        return [f"{', '.join(self._absent)}: on Debian or Ubuntu, `{command}`"]

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return not self._absent

    def run(self, tool: Tool) -> None:
        """Install the programs as root."""
        env = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        failure = f"Debian's packages {', '.join(self._packages)} cannot be installed"
        # An interrupted setup may have left packages half configured.
        tool(failure, ["dpkg", "--configure", "-a"], env=env)
        read, write = os.pipe()
        watching = threading.Thread(target=self._watch, args=(read,))
        watching.start()
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", f"APT::Status-Fd={write}"]
        command = [*apt, "install", "-y", "--no-install-recommends", *self._packages]
        try:
            try:
                tool(failure, command, env=env, pass_fds=(write,))
            except SetupError:
                # The machine's list of packages may be missing or too old.
                tool(failure, [*apt, "update"], env=env, pass_fds=(write,))
                tool(failure, command, env=env, pass_fds=(write,))
        finally:
            os.close(write)
            watching.join()

    def _watch(self, read: int) -> None:
        with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                kind, _, *rest = line.split(":")
                if kind in ("dlstatus", "pmstatus"):
                    word = "download" if kind == "dlstatus" else "install"
                    self._percent = f"{word} {float(rest[0]):.0f} %"

    def progress(self) -> str:
        """The progress that apt reports."""
        return f"({', '.join(self._packages)}) {self._percent}".rstrip()


class HeadlessShell:
    """Headless Chromium, with which tests use a third less CPU. Ubuntu has no package of it."""

    name = "chromium-headless-shell"

    def __init__(self) -> None:
        # Try it only once: without it, the tests run in Chromium.
        self._tried = ROOT / ".setup" / "tried-headless-shell"

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        installs = os.geteuid() == 0 and find("apt-get")
        return bool(find(self.name)) or not installs or self._tried.exists()

    def run(self, tool: Tool) -> None:
        """Install it if Debian has it."""
        command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y"]
        env = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        with contextlib.suppress(SetupError):
            failure = f"{self.name} cannot be installed"
            tool(failure, [*command, "--no-install-recommends", self.name], env=env)
        self._tried.touch()

    def progress(self) -> str:
        """The current action."""
        return "download and install"


class KafkaBroker:
    """The jars that `tests/cluster/kafka.pom.xml` names, 43 MB; shared by all checkouts."""

    name = "Kafka"

    def __init__(self) -> None:
        self._pom = ROOT / "tests" / "cluster" / "kafka.pom.xml"
        version = re.search(r"kafka_2\.13.*?<version>(.*?)<", self._pom.read_text("utf-8"), re.S)
        assert version is not None
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        moved = downloads("XDG_CACHE_HOME", cache, "")
        self._cache = Path(moved.get("XDG_CACHE_HOME", cache)) / "hanzo-pubsub"
        self._jars = self._cache / f"kafka-{version[1]}"

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    def programs(self) -> list[str]:
        """The programs that this step needs."""
        return ["java"] if self.ready else ["java", "maven"]

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._jars.is_dir()

    def run(self, tool: Tool) -> None:
        """Download the jars with Maven."""
        self._cache.mkdir(parents=True, exist_ok=True)
        # Download to a temporary folder, so that an interrupted download is not used as a broker.
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="kafka.") as fresh:
            jars = Path(fresh) / "jars"
            maven: Command = ["mvn", "--batch-mode", "--file", self._pom]
            maven += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            maven += [f"-DoutputDirectory={jars}"]
            if not os.access(Path.home(), os.W_OK):
                maven.append(f"-Dmaven.repo.local={ROOT / '.cache' / 'maven'}")
            maven.append("-Dmaven.wagon.http.retryHandler.count=5")
            tool("Kafka cannot be fetched", maven)
            # Another checkout may have downloaded them meanwhile.
            if not self._jars.exists():
                jars.rename(self._jars)

    def progress(self) -> str:
        """No progress is known."""
        return "(jars of the broker, by Maven)"


class SparkClasses:
    """The class archive that the JVMs of the Spark tests load, in `.cache/`.

    Requires `.venv/` and Java. If the archive is missing, a test creates it in half a minute.
    """

    name = "classes of Spark"

    def __init__(self) -> None:
        self._folder = ROOT / ".cache" / "spark"
        programs = [ROOT / "tests" / "spark" / f"{name}.py" for name in ("jvm", "usual_job")]
        self._stamp = Stamp(self._folder / ".ready", PINS, *programs)

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return self._stamp.current and any(self._folder.glob("*.jsa"))

    def run(self, tool: Tool) -> None:
        """Run a small job, and archive the classes that it has loaded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command: Command = [VENV / "bin" / "python", "-m", "tests.spark.jvm"]
        tool("The classes of Spark cannot be archived", command)
        self._stamp.write()

    def progress(self) -> str:
        """No progress is known."""
        return "archive"


class Bytecode:
    """The bytecode of the tests and of the packages that they import, for the Python of `.venv/`.

    Requires `.venv/`. Without it, each process of the first test run compiles the same modules.
    """

    name = "bytecode of the tests"

    def __init__(self) -> None:
        self._stamp = Stamp(VENV / ".bytecode", PINS)

    def missing(self) -> list[str]:
        """Prerequisites that are missing."""
        return []

    @property
    def ready(self) -> bool:
        """Whether it was compiled for these packages. Python compiles changed modules again."""
        return self._stamp.current

    def run(self, tool: Tool) -> None:
        """Compile the modules."""
        compile_tests(tool, VENV / "bin" / "python", "tests")
        self._stamp.write()

    def progress(self) -> str:
        """No progress is known."""
        return "compile"


def compile_tests(tool: Tool, python: Path, folder: str) -> None:
    """Let pytest compile the tests of a folder, because it stores bytecode of its own."""
    command: Command = [python, "-m", "pytest", "--collect-only", "--quiet", folder]
    # A test that cannot be imported is reported when the tests run.
    with contextlib.suppress(SetupError):
        tool("The tests cannot be compiled", [*command, "-p", "no:cacheprovider"])


class InOrder:
    """A sequence of steps, each of which requires the previous one."""

    def __init__(self, *steps: Step) -> None:
        self._steps = [step for step in steps if not step.ready]
        self._now = 0

    @property
    def name(self) -> str:
        """The name of the current step."""
        return ", ".join(step.name for step in self._steps)

    def missing(self) -> list[str]:
        """Prerequisites that are missing, of all steps."""
        return [line for step in self._steps for line in step.missing()]

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        return not self._steps

    def run(self, tool: Tool) -> None:
        """Run the steps one after the other."""
        for number, step in enumerate(self._steps):
            self._now = number
            step.run(tool)

    def progress(self) -> str:
        """The progress of the current step."""
        return self._steps[self._now].progress()
