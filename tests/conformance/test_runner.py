"""The runner detects errors in scenarios and in clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance import runner, scenarios, table
from tests.conformance.matching import mismatches
from tests.conformance.scenarios import Scenario, WrongFile, parse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.peer_process import Peers

RIGHT = """
group: Trial
scenarios:
  - name: A client that was never used has done nothing
    steps:
      - {client: a, as: alice}
      - {do: state, by: a, gives: initialized}
"""
WRONG = RIGHT.replace("gives: initialized", "gives: connected")


def _one(text: str) -> Scenario:
    (scenario,) = parse(text, "trial.yaml")
    return scenario


@pytest.mark.asyncio(loop_scope="session")
async def test_a_scenario_that_is_wrong_fails_and_shows_the_step(
    peers: Peers, tmp_path: Path
) -> None:
    came = await runner.outcome(_one(WRONG), await peers.get("python"), tmp_path, None)
    assert not came.passed
    assert came.problem is not None
    assert "it is 'initialized', expected 'connected'" in came.problem
    assert "step 2" in came.problem


@pytest.mark.asyncio(loop_scope="session")
async def test_a_listed_scenario_that_fails_is_no_problem(peers: Peers, tmp_path: Path) -> None:
    came = await runner.outcome(_one(WRONG), await peers.get("python"), tmp_path, "it is wrong")
    assert (came.passed, came.problem) == (False, None)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_listed_scenario_that_passes_is_a_problem(peers: Peers, tmp_path: Path) -> None:
    came = await runner.outcome(_one(RIGHT), await peers.get("python"), tmp_path, "it was wrong")
    assert came.problem is not None
    assert "Remove it from known_failures.yaml" in came.problem


@pytest.mark.asyncio(loop_scope="session")
async def test_a_step_that_waits_in_vain_fails(
    peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 0.05)
    text = RIGHT.replace("{do: state, by: a, gives: initialized}", "{see: a.states, next: [{}]}")
    came = await runner.outcome(_one(text), await peers.get("python"), tmp_path, None)
    assert came.problem is not None
    assert "nothing came within 0.05 s" in came.problem


@pytest.mark.asyncio(loop_scope="session")
async def test_no_token_is_shown_where_a_scenario_fails(peers: Peers, tmp_path: Path) -> None:
    text = WRONG.replace("      - {do:", "      - {do: connect, by: a}\n      - {do:").replace(
        "gives: connected", "gives: closed"
    )
    came = await runner.outcome(_one(text), await peers.get("python"), tmp_path, None)
    assert came.problem is not None
    assert "<token of alice>" in came.problem
    assert "eyJ" not in came.problem


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("do: state", "do: dance"),
        ("gives: initialized", "gives: initialized, fails: {code: closed}"),
        ("gives: initialized", "fails: {type: ClosedError}"),
        ("{client: a", "{clients: a"),
        ("nothing\n", "nothing.\n"),
        ("group: Trial", "title: Trial"),
    ],
)
def test_a_file_of_another_shape_is_refused(old: str, new: str) -> None:
    assert old in RIGHT
    with pytest.raises(WrongFile, match=r"^trial\.yaml, \$"):
        parse(RIGHT.replace(old, new, 1), "trial.yaml")


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(RIGHT, encoding="utf-8")
    with pytest.raises(WrongFile, match="more than one scenario"):
        scenarios.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("No such scenario: {python: x}", "there is no scenario `No such scenario`"),
        ("A second close has no effect: {cobol: x}", "give a language and a reason"),
        ("A second close has no effect: {python: ''}", "give a language and a reason"),
    ],
)
def test_a_wrong_list_of_known_failures_is_refused(
    tmp_path: Path, text: str, expected_text: str
) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongFile, match=expected_text):
        scenarios.known_failures(path)


def test_words_that_other_versions_of_yaml_read_as_booleans_are_text() -> None:
    text = RIGHT.replace("as: alice", "as: 'no', options: {on: yes, off: true}")
    assert _one(text).steps[0]["options"] == {"on": "yes", "off": True}


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        (1, 1),
        (1, 1.0),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {"$absent": True}}, {}),
        ({"a": {"$absent": True}}, {"a": None}),
        ({"a": {"$any": True}}, {"a": None}),
        ({"$type": "int"}, 7),
        ({"$matches": "^m"}, "msg"),
        ({"$set": [1, {"a": 2}]}, [{"a": 2, "b": 3}, 1]),
        ({"$has": [2]}, [1, 2, 3]),
        ({"$least": 3}, 3),
        ({"$one_of": [1, 2]}, 2),
        ({"$python": 1, "$typescript": 2}, 1),
    ],
)
def test_what_is_as_expected_matches(expected: Any, seen: Any) -> None:
    assert mismatches(expected, seen, {}, "python") == []


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        (1, 2),
        (1, True),
        (1, "1"),
        (None, False),
        ({"a": 1}, {}),
        ({"a": 1}, []),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ({"a": {"$absent": True}}, {"a": 0}),
        ({"a": {"$any": True}}, {}),
        ({"$type": "int"}, True),
        ({"$type": "int"}, 1.5),
        ({"$matches": "^m"}, "x"),
        ({"$set": [1, 1]}, [1, 2]),
        ({"$set": [1]}, [1, 2]),
        ({"$has": [2, 2]}, [1, 2, 3]),
        ({"$least": 3}, 2),
        ({"$most": 3}, 4),
        ({"$least": 0}, "1"),
        ({"$one_of": [1, 2]}, 3),
        ({"$python": 1, "$typescript": 2}, 2),
    ],
)
def test_what_is_not_as_expected_does_not_match(expected: Any, seen: Any) -> None:
    assert mismatches(expected, seen, {}, "python") != []


def test_a_value_is_saved_only_where_all_matches() -> None:
    saved: dict[str, Any] = {}
    expected = {"a": {"$save": "a", "is": {"$type": "int"}}, "b": 2}
    assert mismatches(expected, {"a": 1, "b": 3}, saved, "python") != []
    assert saved == {}
    assert mismatches(expected, {"a": 1, "b": 2}, saved, "python") == []
    assert saved == {"a": 1}


def test_the_table_has_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "conformance.md"
    page.write_text(
        table.PAGE.read_text(encoding="utf-8").replace("# Conformance", "# Trial", 1),
        encoding="utf-8",
    )
    monkeypatch.setattr(table, "PAGE", page)
    one = _one(RIGHT)
    table.write([one], {(one.name, "python"): True, (one.name, "typescript"): False})
    shown = {"python": "passes", "typescript": "known to fail"}
    assert table.read() == {(one.name, language): text for language, text in shown.items()}
    assert page.read_text(encoding="utf-8").startswith("# Trial")
