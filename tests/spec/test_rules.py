"""docs/rules.md explains every rule that code, traces and tests cite, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.spec.files import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT: Final = SPEC.parent
PLACES: Final = (
    "python/hanzoai",
    "js/src",
    "server-mock/pubsub_server",
    "server-mock/console/src",
    "spec/traces",
    "tests/rules",
    "tests/simulation",
    "tests/js/simulation",
)
SUFFIXES: Final = frozenset({".py", ".ts", ".tsx", ".json"})
NOT_RULES: Final = frozenset(
    {"CRC-32", "EIP-191", "HIP-56", "SHA-1", "SHA-256", "SHA-512", "UTF-8", "UTF-16"}
)
"""Names of standards that have the form of a rule. HIP-56's statements have one letter."""

_RULE: Final = re.compile(r"\b[A-Z]{2,6}-\d{1,4}\b")
_ROW: Final = re.compile(r"^\| ([A-Z]+-\d+) \| (.+) \|$", re.MULTILINE)


def sources() -> Iterator[Path]:
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            if path.suffix in SUFFIXES and "generated" not in path.parts:
                yield path


def rows() -> list[tuple[str, str]]:
    return _ROW.findall((ROOT / "docs" / "rules.md").read_text(encoding="utf-8"))


def test_the_page_explains_the_rules_that_are_cited_and_no_others() -> None:
    cited = {
        rule
        for path in sources()
        for rule in _RULE.findall(path.read_text(encoding="utf-8"))
        if rule not in NOT_RULES
    }
    assert len(cited) > 30
    assert cited == {rule for rule, _ in rows()}


def test_each_rule_has_one_row_with_one_sentence() -> None:
    names = [rule for rule, _ in rows()]
    assert len(names) == len(set(names))
    for rule, sentence in rows():
        assert sentence.endswith("."), rule
        assert ". " not in sentence, rule
