"""Runs every scenario in every language; known failures must fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.conformance import table
from tests.conformance.peer_process import LANGUAGES, Language
from tests.conformance.runner import outcome
from tests.conformance.scenarios import Scenario, known_failures, load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.peer_process import Peers

KNOWN: Final = known_failures()
CASES: Final = [
    pytest.param(scenario, language, id=f"{scenario.id}-{language}")
    for scenario in load()
    for language in LANGUAGES
]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("scenario", "language"), CASES)
async def test_the_client_behaves_as_the_scenario_says(
    scenario: Scenario, language: Language, peers: Peers, tmp_path: Path
) -> None:
    known = KNOWN.get((scenario.name, language))
    came = await outcome(scenario, await peers.get(language), tmp_path, known)
    assert came.problem is None, came.problem
    assert table.shown(came.passed) == table.read().get((scenario.name, language)), (
        f"docs/conformance.md says otherwise; {table.REMEDY}"
    )


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.id) for one in load()])
async def test_the_python_client_behaves_the_same_on_picows_and_msgspec(
    scenario: Scenario, peers: Peers, tmp_path: Path
) -> None:
    known = KNOWN.get((scenario.name, "python"))
    came = await outcome(scenario, await peers.get("python", "on"), tmp_path, known)
    assert came.problem is None, came.problem
    assert table.shown(came.passed) == table.read().get((scenario.name, "python"))


def test_the_page_lists_every_scenario_and_no_other() -> None:
    assert list(table.read()) == [(one.name, language) for one in load() for language in LANGUAGES]


def test_there_are_enough_scenarios() -> None:
    assert len(load()) >= 60
