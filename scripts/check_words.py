"""Finds phrases that the style page in CONTRIBUTING.md bans.

    python scripts/check_words.py [FILE...]

It reads prose: Markdown without inline code, comments and strings of Python, TypeScript, CSS and
HTML, and everything in YAML, JSON and configuration files. `scripts/words.yaml` lists the phrases,
and the files that still contain some. Remove a file from that list when it is clean; the check
fails for an entry that is no longer needed.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
WORDS: Final = ROOT / "scripts" / "words.yaml"

SUFFIXES: Final = frozenset(
    {".md", ".yaml", ".yml", ".json", ".toml", ".cfg", ".conf", ".service", ".sh"}
    | {".py", ".ts", ".tsx", ".js", ".mjs", ".css", ".html"}
)
PLACES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "spec", "python", "js")
PLACES_ALSO: Final = (
    *("server-mock", "examples", "scripts", "mkdocs.yml", "Makefile", "SECURITY.md"),
    *(".github", ".devcontainer", ".pre-commit-config.yaml"),
)
LEFT_OUT: Final = re.compile(
    r"(^|/)(generated|traces|package-lock\.json|biome\.json)(/|$)"
    r"|^scripts/(words\.yaml|check_words\.py)$|^spec/readings\.json$|^spec/examples/"
)

_INLINE_CODE: Final = re.compile(r"`[^`\n]*`")
_SCRIPT_PROSE: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`""", re.DOTALL
)
_PYTHON_PROSE: Final = frozenset({"COMMENT", "STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"})


@dataclass(frozen=True, slots=True)
class Phrase:
    """One banned phrase.

    Attributes:
        find: Regular expression; ignores case, and also matches across a line break.
        use: What to write instead.
    """

    find: re.Pattern[str]
    use: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The content of `scripts/words.yaml`.

    Attributes:
        phrases: Every banned phrase.
        exempt: Files, or folders with a slash at the end, that still contain some.
    """

    phrases: tuple[Phrase, ...]
    exempt: tuple[str, ...]

    def exemption(self, path: str) -> str | None:
        """The entry that exempts this file, if any."""
        folders = (each for each in self.exempt if each.endswith("/") and path.startswith(each))
        return path if path in self.exempt else next(folders, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One occurrence of a banned phrase.

    Attributes:
        path: File, from the root of the repository.
        line: Line, from 1.
        text: The words found.
        use: What to write instead.
    """

    path: str
    line: int
    text: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: write {self.use}"


def load(source: str) -> Rules:
    """Reads the text of `scripts/words.yaml`."""
    document = yaml.safe_load(source)
    phrases = (
        Phrase(re.compile(row["find"].replace(" ", r"\s+"), re.IGNORECASE), row["use"])
        for row in document["banned"]
    )
    return Rules(tuple(phrases), tuple(document.get("exempt") or ()))


def prose(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield each piece of prose in a file, with the number of its first line."""
    if name.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if tokenize.tok_name[token.type] in _PYTHON_PROSE:
                yield token.start[0], token.string
    elif name.endswith((".ts", ".tsx", ".js", ".mjs")):
        for match in _SCRIPT_PROSE.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[0]
    else:
        yield 1, text


def _blank(code: re.Match[str]) -> str:
    return " " * len(code[0])


def findings(path: str, text: str, phrases: Iterable[Phrase]) -> list[Finding]:
    """Return the banned phrases in a file, in the order of the lines."""
    found: list[Finding] = []
    for first, piece in prose(path, text):
        # A TypeScript template literal is prose, even if it contains expressions.
        bare = piece if piece[0] == "`" else _INLINE_CODE.sub(_blank, piece)
        for phrase in phrases:
            for match in phrase.find.finditer(bare):
                line = first + bare.count("\n", 0, match.start())
                found.append(Finding(path, line, " ".join(match[0].split()), phrase.use))
    return sorted(found, key=lambda each: each.line)


def files() -> list[str]:
    """Return every file of the repository that contains prose."""
    places = (*PLACES, *PLACES_ALSO)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *places]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        path
        for path in listed.splitlines()
        if (Path(path).suffix in SUFFIXES or path == "Makefile")
        and not LEFT_OUT.search(path)
        and (ROOT / path).is_file()
    ]


def check(paths: Iterable[str], rules: Rules) -> tuple[list[Finding], list[str]]:
    """Findings in files that are not exempt, and exemptions that are no longer needed."""
    bad: list[Finding] = []
    needed: set[str] = set()
    for path in paths:
        found = findings(path, (ROOT / path).read_text(encoding="utf-8"), rules.phrases)
        exemption = rules.exemption(path)
        if exemption is None:
            bad += found
        elif found:
            needed.add(exemption)
    return bad, [each for each in rules.exempt if each not in needed]


def main() -> int:
    parser = argparse.ArgumentParser(description="Finds phrases that CONTRIBUTING.md bans.")
    parser.add_argument("files", nargs="*", help="check these, exempt or not; default: all")
    chosen: list[str] = parser.parse_args().files
    rules = load(WORDS.read_text(encoding="utf-8"))
    if chosen:
        paths = [str(Path(each).resolve().relative_to(ROOT)) for each in chosen]
        bad, stale = check(paths, Rules(rules.phrases, ()))
    else:
        bad, stale = check(files(), rules)
    for finding in bad:
        print(finding)
    for entry in stale:
        print(f"scripts/words.yaml: {entry} is clean: remove it from `exempt`")
    if bad:
        print(
            f"{len(bad)} banned phrases; CONTRIBUTING.md, Style, says how to write", file=sys.stderr
        )
    return 1 if bad or stale else 0


if __name__ == "__main__":
    sys.exit(main())
