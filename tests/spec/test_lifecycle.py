"""The lifecycle compiler rejects every incomplete table."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.generated import lifecycle
from spec._generate.lifecycle import Row, SpecError, compile_lifecycle, load
from tests.spec.files import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE = load(SPEC / "lifecycle.yaml")
SMALL: dict[str, Any] = {
    "initial": "off",
    "final": ["done"],
    "states": {
        "off": {"public": "off", "means": "nothing"},
        "on": {"public": "on", "means": "running"},
        "late": {"public": "on", "means": "running late"},
        "done": {"public": "done", "means": "over"},
    },
    "forks": {"apart": {"if": "overdue", "then": "late", "else": "on"}},
    "timers": {"tick": "ticked"},
    "guards": {
        "able": {"asks": "session", "means": "it can"},
        "asked": {"asks": "event", "means": "it was asked for"},
        "over": {"asks": "event", "means": "the end is there"},
        "overdue": {"asks": "session", "means": "it is late"},
    },
    "events": {"start": "user", "ticked": "timer"},
    "rows": [
        {"from": "off", "event": "start", "if": ["asked", "able"], "to": "apart", "do": ["run"]},
        {"from": ["on", "late"], "event": "ticked", "if": "over", "to": "done", "do": []},
        {
            "from": ["on", "late"],
            "event": "ticked",
            "before": "look",
            "to": "same",
            "do": ["count"],
        },
    ],
    "ignore": [
        {"in": "off", "event": "start"},
        {"in": ["on", "late"], "event": "start"},
        {"in": "done", "event": "*"},
    ],
    "faults": [{"in": "off", "event": "ticked", "because": "no timer runs"}],
}


def test_the_sugar_becomes_plain_rows() -> None:
    machine = compile_lifecycle(SMALL)
    assert machine.table["off"] == {
        "start": (
            Row(("asked", "able", "overdue"), (), "late", ("run",)),
            Row(("asked", "able"), (), "on", ("run",)),
        )
    }
    assert machine.table["late"]["ticked"] == (
        Row(("over",), (), "done", ()),
        Row((), ("look",), "late", ("count",)),
    )
    assert machine.table["done"] == {"start": (), "ticked": ()}
    assert machine.guards == ("able", "asked", "over", "overdue")
    assert machine.actions == ("count", "look", "run")
    assert machine.falls_through == {("off", "start")}
    assert machine.faults == {("off", "ticked"): "no timer runs"}


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    spec = deepcopy(SMALL)
    change(spec)
    with pytest.raises(SpecError) as caught:
        compile_lifecycle(spec)
    return str(caught.value)


def test_an_unknown_state_is_refused() -> None:
    assert "'nowhere'" in broken(lambda spec: spec["rows"][0].update(to="nowhere"))


def test_an_unknown_event_is_refused() -> None:
    assert "'stop'" in broken(lambda spec: spec["rows"][0].update(event="stop"))


def test_an_unknown_timer_is_refused() -> None:
    assert "'tock'" in broken(lambda spec: spec["rows"][0].update(do=["run", "+tock"]))


def test_a_timer_is_started_and_stopped_without_a_step_of_its_own() -> None:
    spec = deepcopy(SMALL)
    spec["rows"][0].update(do=["run", "-tick", "+tick"])
    machine = compile_lifecycle(spec)
    assert machine.actions == ("count", "look", "run")
    assert machine.timer_steps == ("+tick", "-tick")


def test_an_unknown_key_is_refused() -> None:
    assert "'unless'" in broken(lambda spec: spec["rows"][0].update(unless="tired"))


def test_a_row_after_an_unguarded_one_is_refused() -> None:
    again = {"from": "on", "event": "ticked", "to": "same", "do": []}
    assert "unreachable row" in broken(lambda spec: spec["rows"].append(again))


def test_a_pair_without_a_row_is_refused() -> None:
    assert "neither a row" in broken(lambda spec: spec["faults"].clear())


def test_guards_that_may_all_fail_are_refused_unless_that_is_ignored() -> None:
    assert "all guards may fail" in broken(lambda spec: spec["ignore"].pop(0))


def test_a_pair_with_a_row_for_all_cases_cannot_be_ignored() -> None:
    entry = {"in": "on", "event": "ticked"}
    assert "both a row" in broken(lambda spec: spec["ignore"].append(entry))


def test_a_pair_that_is_ignored_is_no_fault() -> None:
    entry = {"in": "on", "event": "start", "because": "no"}
    assert "both a fault" in broken(lambda spec: spec["faults"].append(entry))


def test_a_pair_is_ignored_once() -> None:
    entry = {"in": "done", "event": "start"}
    assert "defined twice" in broken(lambda spec: spec["ignore"].append(entry))


def test_a_state_that_no_row_leads_to_is_refused() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["states"]["lost"] = {"public": "on", "means": "lost"}
        spec["ignore"].append({"in": "lost", "event": "*"})

    assert "no row leads to ['lost']" in broken(change)


def test_a_final_state_is_not_left() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["ignore"].pop()
        spec["ignore"].append({"in": "done", "event": "ticked"})
        spec["rows"].append({"from": "done", "event": "start", "to": "on", "do": []})

    assert "'done' is final" in broken(change)


def test_an_event_that_no_row_fires_on_is_refused() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["events"]["noise"] = "shell"
        spec["ignore"].append({"in": ["off", "on", "late"], "event": "noise"})

    assert "no row fires on ['noise']" in broken(change)


def test_a_guard_without_a_meaning_is_refused() -> None:
    assert "['able']" in broken(lambda spec: spec["guards"].pop("able"))


def test_a_guard_that_no_row_asks_is_refused() -> None:
    idle = {"asks": "event", "means": "nothing"}
    assert "['idle']" in broken(lambda spec: spec["guards"].update(idle=idle))


def test_a_timer_without_its_event_is_refused() -> None:
    assert "one to one" in broken(lambda spec: spec["timers"].update(tock="tocked"))


def test_an_unknown_source_of_events_is_refused() -> None:
    assert "['moon']" in broken(lambda spec: spec["events"].update(start="moon"))


def test_a_guard_is_no_action() -> None:
    assert "both a guard and an action" in broken(lambda spec: spec["rows"][0].update(do=["over"]))


def test_the_generated_table_is_the_compiled_one() -> None:
    generated = {
        state: {event: tuple(Row(*row) for row in rows) for event, rows in cells.items()}
        for state, cells in lifecycle.TABLE.items()
    }
    assert generated == MACHINE.table


def test_the_steps_name_every_guard_and_action() -> None:
    steps = {name for name in vars(lifecycle.Steps) if not name.startswith("_")}
    assert steps == {*MACHINE.guards, *MACHINE.actions}


def test_no_peer_can_cause_a_fault_once_a_transport_was_dialed() -> None:
    frames = {event for event, source in MACHINE.sources.items() if source == "frame"}
    faults = {(state, event) for state, event in MACHINE.faults if event in frames}
    assert {state for state, _ in faults} == {"initialized"}


def test_every_state_but_the_final_ones_can_be_aborted() -> None:
    for state in MACHINE.states:
        if state not in MACHINE.final:
            assert [row.to for row in MACHINE.table[state]["abort"]] == ["closed"]


def test_each_way_to_failed_takes_the_one_step_that_ends_with_an_error() -> None:
    for _, _, row in MACHINE.rows():
        if row.to == "failed":
            assert row.actions == ("fail",)
