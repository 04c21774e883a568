"""The dashboard matches Grafana's own models: each option and each of its values is valid."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARD: Final = (
    Path(__file__).parents[2] / "server-mock" / "deploy" / "grafana" / "hanzo-pubsub.json"
)


def read() -> tuple[dict[str, Any], Dashboard]:
    """The dashboard file, and the model that Grafana reads from it."""
    register_default_plugins()
    given: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return given, Dashboard.from_json(given)


def lost(given: object, kept: object, where: str = "") -> Iterator[str]:
    """Return the parts of the file that the models don't know; the models add defaults."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from lost(value, kept.get(name), f"{where}/{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{where}/{number}")
    elif given != kept:
        yield f"{where}: {given!r}"


def choices(model: object) -> Iterator[tuple[str, type[Enum], object]]:
    """Yield every attribute with a fixed set of values: its place, these values, and its value."""
    if isinstance(model, (list, dict)):
        for below in model.values() if isinstance(model, dict) else model:
            yield from choices(below)
    elif hasattr(model, "to_json"):
        hints = get_type_hints(type(model))
        for name, value in vars(model).items():
            for kind in (hints.get(name), *get_args(hints.get(name))):
                if isinstance(kind, type) and issubclass(kind, Enum) and value is not None:
                    yield f"{type(model).__qualname__}.{name}", kind, value
            yield from choices(value)


def test_grafana_keeps_everything_in_the_dashboard() -> None:
    given, board = read()
    missing = list(lost(given, json.loads(JSONEncoder().encode(board))))
    assert not missing


def test_every_choice_of_the_dashboard_is_one_that_grafana_has() -> None:
    _, board = read()
    found = list(choices(board))
    assert len(found) > 200
    words = {kind: {word.value for word in kind} for _, kind, _ in found}
    assert not [(where, value) for where, kind, value in found if value not in words[kind]]


def test_every_unit_of_the_dashboard_is_one_that_grafana_has() -> None:
    given, _ = read()
    graphs = [panel for panel in given["panels"] if panel["type"] != "row"]
    there = {value for value in vars(units).values() if isinstance(value, str)}
    named = {panel["fieldConfig"]["defaults"]["unit"]: panel["title"] for panel in graphs}
    assert len(named) > 5
    # Grafana accepts any other unit, and appends it unchanged to the numbers.
    assert {unit: title for unit, title in named.items() if unit not in there} == {}
