"""The table of docs/conformance.md."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from tests.conformance.peer_process import LANGUAGES, ROOT, Language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.conformance.scenarios import Scenario

PAGE: Final = ROOT / "docs" / "conformance.md"
REMEDY: Final = "write it again with `python -m tests.conformance --write-table`"
_BEGIN: Final = "<!-- scenarios -->\n"
_END: Final = "<!-- end of scenarios -->"
_ROW: Final = re.compile(r"\| (?P<name>[^|]+) \| (?P<python>[^|]+) \| (?P<typescript>[^|]+) \|")
Cell = tuple[str, Language]


def shown(passed: bool) -> str:
    """Return the text of a table cell."""
    return "passes" if passed else "known to fail"


def read() -> dict[Cell, str]:
    """Return the cells on the page."""
    text = PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]
    found: dict[Cell, str] = {}
    for row in _ROW.finditer(text):
        if row["python"] not in ("Python", "---"):
            found |= {(row["name"], language): row[language] for language in LANGUAGES}
    return found


def write(scenarios: Sequence[Scenario], passed: Mapping[Cell, bool]) -> None:
    """Write the results of a full run to the page."""
    parts: list[str] = []
    for group, members in itertools.groupby(scenarios, lambda scenario: scenario.group):
        rows = "".join(
            f"| {one.name} | {shown(passed[one.name, 'python'])} "
            f"| {shown(passed[one.name, 'typescript'])} |\n"
            for one in members
        )
        parts.append(f"\n## {group}\n\n| | Python | TypeScript |\n|---|---|---|\n{rows}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(f"{before}{_BEGIN}{''.join(parts)}\n{_END}{after}", encoding="utf-8")
