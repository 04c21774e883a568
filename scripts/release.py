"""The version of a release: one number in all packages, and its notes from CHANGELOG.md.

Usage: `python scripts/release.py check [TAG]`, `python scripts/release.py set VERSION`, or
`python scripts/release.py notes TAG`. The version in pyproject.toml is authoritative.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


@dataclass(frozen=True)
class Place:
    """A file that contains the version, and the line with it; `{}` stands for the version."""

    file: str
    line: str


PLACES = (
    Place("pyproject.toml", '^version = "{}"$'),
    Place("server-mock/pyproject.toml", '^version = "{}"$'),
    Place("js/package.json", '^  "version": "{}",$'),
    Place("server-mock/deploy/helm/Chart.yaml", "^version: {}$"),
    Place("server-mock/deploy/helm/Chart.yaml", "^appVersion: {}$"),
)


def version_of(root: Path) -> str:
    """Return the version of the packages."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def check(root: Path, tag: str | None) -> list[str]:
    """Return the problems that prevent a release of this state; empty if there are none."""
    version = version_of(root)
    wrong = [
        f"{place.file} lacks version {version}; run: python scripts/release.py set {version}"
        for place in PLACES
        if not re.search(_pattern(place, version), _text(root, place.file), re.MULTILINE)
    ]
    if tag is not None:
        if tag != f"v{version}":
            wrong.append(f"the tag is {tag}, but the version of pyproject.toml is {version}")
        if not notes(root, version):
            wrong.append(f"CHANGELOG.md: there is no text below `## [{version}]`")
    return wrong


def set_version(root: Path, version: str) -> None:
    """Write the version to every place."""
    for place in PLACES:
        old = _pattern(place, VERSION.pattern, literal=False)
        new = place.line.strip("^$").format(version)
        text, count = re.subn(old, new, _text(root, place.file), flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"release: {place.file} has {count} lines like {place.line}")
        (root / place.file).write_text(text, encoding="utf-8")


def notes(root: Path, version: str) -> str:
    """Return the text about a version in CHANGELOG.md."""
    heading = rf"^## \[{re.escape(version)}\].*?$\n(.*?)(?=^## \[|\Z)"
    found = re.search(heading, _text(root, "CHANGELOG.md"), re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _pattern(place: Place, version: str, *, literal: bool = True) -> str:
    return place.line.replace("{}", re.escape(version) if literal else version)


def _text(root: Path, file: str) -> str:
    return (root / file).read_text(encoding="utf-8")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run the command of the command line."""
    match arguments:
        case ["check", *tag] if len(tag) <= 1:
            wrong = check(root, tag[0] if tag else None)
            for line in wrong:
                print(f"release: {line}", file=sys.stderr)
            return 1 if wrong else 0
        case ["set", version] if VERSION.fullmatch(version):
            set_version(root, version)
            return 0
        case ["notes", tag] if text := notes(root, tag.removeprefix("v")):
            print(text)
            return 0
        case ["notes", tag]:
            print(f"release: CHANGELOG.md has no text for {tag}", file=sys.stderr)
            return 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
