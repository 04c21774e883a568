"""The traces match their schema, and the schema knows the names of the lifecycle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import jsonschema
import pytest
from referencing import Registry, Resource

from hanzoai.pubsub.generated import lifecycle
from tests.spec.files import SCHEMA, SPEC
from tests.traces import events
from tests.traces.runner import read

if TYPE_CHECKING:
    from pathlib import Path

FORM: dict[str, Any] = json.loads((SPEC / "trace.schema.json").read_text(encoding="utf-8"))
REGISTRY: Registry[Any] = Resource.from_contents(SCHEMA) @ Registry()
JUDGE = jsonschema.Draft202012Validator(FORM, registry=REGISTRY)
TRACES = sorted(
    path
    for path in (SPEC / "traces").rglob("*.json")
    if "streams" not in path.relative_to(SPEC).parts
)


def trace(event: dict[str, Any], *effects: dict[str, Any]) -> dict[str, Any]:
    steps = [{"in": event, "out": list(effects)}]
    return {"description": "For this test only.", "requirement": ["H-001"], "steps": steps}


def test_the_schema_of_traces_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_has_the_form_of_the_schema(path: Path) -> None:
    JUDGE.validate(read(path, most=2))


def test_a_trace_starts_from_one_that_exists() -> None:
    for path in TRACES:
        if "start" in (found := read(path)):
            assert (SPEC / "traces" / f"{found['start']}.json").exists(), path.stem


def test_no_two_traces_say_the_same() -> None:
    output = [read(path)["description"] for path in TRACES if path.parent.name == "traces"]
    assert len(output) == len(set(output))


def test_the_schema_knows_every_state_and_timer() -> None:
    assert FORM["$defs"]["State"]["enum"] == list(lifecycle.PUBLIC)
    own = get_args(events.SessionTimer)
    assert FORM["$defs"]["Timer"]["enum"] == [*lifecycle.TIMERS, *own]


def test_every_event_and_effect_of_the_schema_is_in_some_trace() -> None:
    for part, kind in (("in", "Event"), ("out", "Effect")):
        seen: set[str] = set()
        for path in TRACES:
            for step in read(path)["steps"]:
                seen |= {next(iter(one)) for one in ([step["in"]] if part == "in" else step["out"])}
        named = {choice["required"][0] for choice in FORM["$defs"][kind]["oneOf"]}
        assert named == seen


@pytest.mark.parametrize(
    "broken",
    [
        trace({"jump": {}}),
        trace({"connect": {}, "close": {}}),
        trace({"timer": "lunch"}),
        trace({"frame": {"type": "teleport"}}),
        trace({"frame": {"type": "pong", "server_time": "noon"}}),
        trace({"subscribe": {"sub": 1, "topics": []}}),
        trace({"publish": {"ref": 1, "messages": [{"topic": "a.*", "data": 1}], "size": 9}}),
        trace({"connect": {}}, {"state": ["initialized", "nowhere"]}),
        trace({"connect": {}}, {"start": "open"}),
        trace({"connect": {}}, {"send": {"type": "pong"}}),
        trace({"connect": {}}, {"settle": 1}),
        trace({"connect": {}}, {"settle": 1, "acked": [{}], "unknown": {}}),
        trace({"connect": {}}, {"cancel": "open", "note": "new"}),
        {**trace({"connect": {}}), "requirement": []},
        {**trace({"connect": {}}), "random": [1]},
        {**trace({"connect": {}}), "note": "new"},
        {**trace({"connect": {}}), "steps": []},
    ],
    ids=lambda case: json.dumps(case["steps"])[:60],
)
def test_what_is_no_trace_is_refused(broken: dict[str, Any]) -> None:
    assert not JUDGE.is_valid(broken)


def test_what_is_broken_above_is_valid_without_the_fault() -> None:
    JUDGE.validate(trace({"connect": {}}, {"cancel": "open"}, {"settle": 1, "unknown": {}}))
    JUDGE.validate(trace({"frame": {"type": "pong", "server_time": 5}, "at": 7}))
