"""Writes `docs/statements.md`: the statements of HIP-56 and their tests.

`python -m tests.interop.statements` writes it, `--check` shows the changes. A test is marked with
`@pytest.mark.statement("H-042")`. `statements.yaml` lists the statements, with a note if the tests
cover a statement only in part. A test counts for a statement if a fault of `faults.yaml` breaks it.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec._generate import yaml_text
from tests.interop import faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "statements.md"
TESTS = ("tests/interop", "tests/python", "tests/server", "tests/cluster")
WHO = {"C": "client", "S": "server", "O": "operations"}
INTRODUCTION = """# Statements of HIP-56 and their tests

This page shows which tests prove each statement of HIP-56, and which statements no test proves. The
tests in `tests/interop` send the requests of HIP-56 to the real server with plain `websockets` and
`httpx`. The tests in `tests/cluster` run several nodes on a real Redis.

A test counts for a statement only if it fails when the product breaks that statement.
`tests/interop/faults.yaml` contains {faults} such faults. `make statements` plants each of them in
a copy of the product and runs the tests. Notes in italics name what is not tested, and the reason.
`python -m tests.interop.statements` writes this page.
"""


@dataclass(frozen=True)
class Statement:
    """One testable statement."""

    id: str
    room: str
    who: str
    says: str
    elsewhere: str | None


def statements() -> list[Statement]:
    rooms: Mapping[str, Mapping[str, Mapping[str, Any]]] = yaml_text.parse(
        Path(__file__).with_name("statements.yaml").read_text(encoding="utf-8")
    )
    return [
        Statement(number, room, row["who"], row["says"], row.get("elsewhere"))
        for room, rows in rooms.items()
        for number, row in rows.items()
    ]


@cache
def marked() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return file and name of the tests for each statement, by number."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for folder in TESTS:
        for path in sorted((ROOT / folder).glob("test_*.py")):
            for name, numbers in _tests(ast.parse(path.read_text(encoding="utf-8"))):
                for number in numbers:
                    found[number].append((path.relative_to(ROOT).as_posix(), name))
    return dict(found)


def _tests(module: ast.Module) -> Iterator[tuple[str, Sequence[str]]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.statement":
                    yield node.name, [ast.literal_eval(argument) for argument in mark.args]


def page() -> str:
    tests, proven = marked(), faults.shown()
    rows: dict[str, list[str]] = defaultdict(list)
    shown = 0
    for statement in statements():
        found = tests.get(statement.id, [])
        carried = [(file, name) for file, name in found if (name, statement.id) in proven]
        shown += bool(carried)
        cells = [
            f"{name.removeprefix('test_').replace('_', ' ')} ({file})" for file, name in carried
        ]
        if statement.elsewhere:
            cells.append(f"*{statement.elsewhere}*")
        who = ", ".join(WHO[letter] for letter in statement.who)
        says = statement.says.replace("|", "\\|")
        rows[statement.room].append(
            f"| {statement.id} | {says} | {who} | {'<br>'.join(cells) or '**nothing**'} |"
        )
    introduction = INTRODUCTION.format(faults=len(faults.faults()))
    parts = [introduction, f"Tests prove {shown} of {len(statements())} statements.\n"]
    for room, lines in rows.items():
        head = "| | statement | concerns | shown by |\n|---|---|---|---|"
        parts.append(f"## {room}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    text = page()
    if "--check" in arguments:
        old = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
        diff = list(
            difflib.unified_diff(old, text.splitlines(), "docs/statements.md", "tests", lineterm="")
        )
        print("\n".join(diff))
        return int(bool(diff))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
