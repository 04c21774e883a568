"""Every statement of HIP-56 is shown by a test, or it is said why not."""

from __future__ import annotations

from tests.interop import statements


def test_every_statement_is_shown_by_a_test_or_has_a_reason() -> None:
    tests = statements.marked()
    silent = [s.id for s in statements.statements() if s.id not in tests and not s.elsewhere]
    assert silent == []


def test_every_mark_names_a_statement() -> None:
    known = {statement.id for statement in statements.statements()}
    assert set(statements.marked()) - known == set()


def test_the_page_of_statements_is_current() -> None:
    assert statements.PAGE.read_text(encoding="utf-8") == statements.page(), (
        "run: python -m tests.interop.statements"
    )
