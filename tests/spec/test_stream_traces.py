"""The stream traces match their schema, and cover every step and effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tests.spec.files import SPEC

if TYPE_CHECKING:
    from pathlib import Path

FORM: dict[str, Any] = json.loads((SPEC / "stream_trace.schema.json").read_text(encoding="utf-8"))
JUDGE = jsonschema.Draft202012Validator(FORM)
TRACES = sorted((SPEC / "traces" / "streams").rglob("*.json"))


def read(path: Path) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return trace


def test_the_schema_of_stream_traces_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_stream_trace_has_the_form_of_the_schema(path: Path) -> None:
    JUDGE.validate(read(path))


def test_every_step_and_effect_of_a_stream_is_in_some_trace() -> None:
    steps = [step for path in TRACES for step in read(path)["steps"]]
    definitions = FORM["$defs"]
    names = definitions["Step"]["properties"]["in"]["propertyNames"]["enum"]
    assert {name for step in steps for name in step["in"]} == set(names)
    kinds = definitions["Effect"]["properties"]["kind"]["enum"]
    assert {effect["kind"] for step in steps for effect in step["out"]} == set(kinds)
