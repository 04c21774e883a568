"""Measure the coverage of both languages: `python -m scripts.coverage [GROUP…] [--write]`.

Runs the suites with coverage measurement, including the programs that they start. Prints a table of
the distributions and the least covered modules. `--write` writes both to CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"
LEAST = 10
SMALL = 20
"""Modules with fewer statements or lines are not listed: their coverage has little meaning."""


@dataclass(frozen=True)
class Module:
    """A source file and its coverage: statements of Python, lines of TypeScript."""

    path: str
    total: int
    missed: int

    @property
    def reached(self) -> float:
        """Percentage that the tests run."""
        return 100.0 * (self.total - self.missed) / max(1, self.total)


def measure(groups: Sequence[str], folder: Path) -> int:
    """Run the suites; return the exit code of the runner."""
    env = {
        **os.environ,
        "COVERAGE_FILE": str(folder / "python"),
        "NODE_V8_COVERAGE": str(folder / "node"),
    }
    command = [sys.executable, "-m", "coverage", "run", "-m", "scripts.run_tests", *groups]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def python_modules(folder: Path) -> list[Module]:
    """Combine the results of coverage.py from all processes."""
    env = {**os.environ, "COVERAGE_FILE": str(folder / "python")}
    out = folder / "python.json"
    for command in (["combine", "--quiet"], ["json", "--quiet", "-o", str(out)]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=env, check=True)
    files = json.loads(out.read_text(encoding="utf-8"))["files"]
    return [
        Module(path, each["summary"]["num_statements"], each["summary"]["missing_lines"])
        for path, each in files.items()
    ]


def typescript_modules(folder: Path) -> list[Module]:
    """Combine the results of V8 from Node and Chromium; c8 maps them to the sources."""
    name_sources_by_path(folder / "node")
    program = ROOT / "scripts" / "v8_coverage" / "node_modules" / ".bin" / "c8"
    command = [program, "report", "--temp-directory", folder / "node", "--src", "js/src", "--all"]
    command += ["--include", "js/src", "--exclude", "**/generated/**", "--exclude-after-remap"]
    command += ["--reporter", "json-summary", "--reports-dir", folder]
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)
    found = json.loads((folder / "coverage-summary.json").read_text(encoding="utf-8"))
    return [
        Module(
            Path(path).relative_to(ROOT).as_posix(),
            each["lines"]["total"],
            each["lines"]["total"] - each["lines"]["covered"],
        )
        for path, each in found.items()
        if path != "total" and (each["lines"]["covered"] or _has_code(path))
    ]


def name_sources_by_path(folder: Path) -> None:
    """Replace the URLs of sources by paths: c8 counts all lines of a `file:` URL as covered."""
    for file in folder.glob("*.json"):
        counts = json.loads(file.read_bytes())
        for cached in counts.get("source-map-cache", {}).values():
            if data := cached["data"]:
                sources: list[str] = data["sources"]
                data["sources"] = [
                    url2pathname(urlsplit(each).path) if each.startswith("file:") else each
                    for each in sources
                ]
        file.write_text(json.dumps(counts), encoding="utf-8")


def _has_code(path: str) -> bool:
    """Whether a TypeScript file contains more than types."""
    program = ROOT / "node_modules" / ".bin" / "esbuild"
    done = subprocess.run([program, path], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip() not in ("", '"use strict";')


def table(languages: Sequence[tuple[str, Sequence[Module]]]) -> str:
    """Return Markdown: a row for each distribution, then the least covered modules."""
    lines = ["| part | statements or lines | covered |", "|---|--:|--:|"]
    for name, modules in languages:
        parts: defaultdict[str, list[Module]] = defaultdict(list)
        for module in modules:
            parts[module.path.split("/")[0]].append(module)
        for part, members in parts.items():
            whole = Module(part, sum(m.total for m in members), sum(m.missed for m in members))
            lines.append(f"| {name}, `{part}/` | {whole.total:,} | {whole.reached:.1f} % |")
    everything = [module for _, modules in languages for module in modules if module.total >= SMALL]
    lines += ["", f"The {LEAST} least covered modules:", ""]
    lines += ["| module | statements or lines | covered |", "|---|--:|--:|"]
    for module in sorted(everything, key=lambda each: each.reached)[:LEAST]:
        lines.append(f"| `{module.path}` | {module.total} | {module.reached:.1f} % |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Measure and print the coverage; return the exit code of the tests."""
    parser = argparse.ArgumentParser(prog="python -m scripts.coverage", description=__doc__)
    parser.add_argument("groups", nargs="*", default=["all"], metavar="GROUP")
    parser.add_argument("--write", action="store_true", help="put the tables into CONTRIBUTING.md")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        status = measure(chosen.groups, folder)
        text = table(
            [("Python", python_modules(folder)), ("TypeScript", typescript_modules(folder))]
        )
    print(f"\n{text}")
    if chosen.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        _, after = rest.split(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
