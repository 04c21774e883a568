"""docs/signed.md answers the statements of the proposal, and a test proves each answer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_statement_of_the_page_is_shown_by_a_test() -> None:
    page = (ROOT / "docs" / "signed.md").read_text(encoding="utf-8")
    table = page.partition("<!-- statements -->")[2].partition("<!-- end -->")[0]
    stated = re.findall(r"^\| (B-\d\d) ", table, re.MULTILINE)
    assert len(stated) == len(set(stated)) >= 28
    shown: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for marker in re.findall(r"mark\.statement\(([^)]*)\)", file.read_text(encoding="utf-8")):
            shown |= set(re.findall(r"B-\d\d", marker))
    assert set(stated) - shown == set()
