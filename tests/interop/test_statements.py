"""Every statement of HIP-56 has a test that detects a fault, or a reason for not having one."""

from __future__ import annotations

from collections import defaultdict

from tests.interop import faults, statements


def carried() -> dict[str, set[str]]:
    """Return the statements of each test, by test name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for number, tests in statements.marked().items():
        for _, name in tests:
            found[name].add(number)
    return dict(found)


def test_every_statement_is_shown_by_a_test_or_has_a_reason() -> None:
    shown = {number for _, number in faults.shown()}
    silent = [s.id for s in statements.statements() if s.id not in shown and not s.elsewhere]
    assert silent == []


def test_every_mark_names_a_statement() -> None:
    known = {statement.id for statement in statements.statements()}
    assert set(statements.marked()) - known == set()


def test_marked_tests_have_names_of_their_own() -> None:
    places = {(name, file) for tests in statements.marked().values() for file, name in tests}
    assert len({name for name, _ in places}) == len(places)


def test_a_fault_breaks_each_test_for_each_statement_that_it_carries() -> None:
    marks = {(name, number) for name, numbers in carried().items() for number in numbers}
    assert marks - faults.shown() == set()


def test_every_fault_can_be_planted() -> None:
    every = faults.every_fault()
    assert {fault.breaks: fault.problem for fault in every if fault.problem} == {}


def test_every_fault_of_no_statement_breaks_tests_that_exist() -> None:
    tests = {(file, name) for each in faults.beyond() for name, file in each.files.items()}
    missing = [
        (file, name)
        for file, name in sorted(tests)
        if f"def {name}(" not in (faults.ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_fault_breaks_tests_of_its_statements() -> None:
    marks = carried()
    wrong: list[str] = []
    for fault in faults.faults():
        wrong += [
            f"{fault.breaks} {test} carries none of its statements"
            for test in fault.tests
            if not marks.get(test, set()) & set(fault.statements)
        ]
        wrong += [
            f"{fault.breaks} None of its tests carries {number}"
            for number in fault.statements
            if not any(number in marks.get(test, ()) for test in fault.tests)
        ]
    assert wrong == []


def test_the_page_of_statements_is_current() -> None:
    assert statements.PAGE.read_text(encoding="utf-8") == statements.page(), (
        "run: python -m tests.interop.statements"
    )
