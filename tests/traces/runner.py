"""Runs the traces of `spec/traces/`: the events must cause exactly the listed effects.

Each language runs the same files. A runner needs a JSON parser and a mapping, but no clock and no
socket.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from hanzoai.pubsub.settings.session import SessionOptions
from tests.traces.mapping import canonical, read_event, show_effect
from tests.traces.recorder import LoggedSession

TRACES = Path(__file__).parents[2] / "spec" / "traces"


class TraceFailed(AssertionError):
    """The session differs from the trace."""


def read(path: Path, most: int = 1_000_000) -> Any:
    """Return the content of a file with each `{"times": n, "each": item}` of its lists as n items.

    In these, `#` is the number of the item, from 1. `most` limits the items.
    """
    return _expanded(json.loads(path.read_text(encoding="utf-8")), most)


def _expanded(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {key: _expanded(one, most) for key, one in found.items()}
    if not isinstance(value, list):
        return value
    given: list[Any] = value
    items: list[Any] = []
    for one in given:
        match one:
            case {"times": int(times), "each": each}:
                text = json.dumps(each)
                for n in map(str, range(1, min(times, most) + 1)):
                    items.append(json.loads(text.replace('"#"', n).replace("#", n)))
            case _:
                items.append(_expanded(one, most))
    return items


def load(path: Path) -> dict[str, Any]:
    """Return a trace with the steps and random numbers of the trace on which it is based."""
    trace: dict[str, Any] = read(path)
    if "start" in trace:
        start = load(TRACES / f"{trace['start']}.json")
        for key in ("random", "steps"):
            trace[key] = start.get(key, []) + trace.get(key, [])
        trace["options"] = start.get("options", {}) | trace.get("options", {})
    return trace


def run(trace: dict[str, Any]) -> None:
    """Run a trace.

    Raises:
        TraceFailed: An effect is missing, differs or is misplaced; or random numbers are left.
    """
    numbers = list(trace.get("random", []))
    options = SessionOptions(client_name="trace", client_lang=None, **trace.get("options", {}))
    session = LoggedSession(options, lambda: numbers.pop(0))
    for n, step in enumerate(trace["steps"]):
        got = [show_effect(effect) for effect in session.handle(read_event(step["in"]))]
        if canonical(got) != canonical(step["out"]):
            where = f"step {n}, {canonical(step['in'])}"
            raise TraceFailed(
                f"{where}\nexpected {canonical(step['out'])}\ngot      {canonical(got)}"
            )
        if session.publishes.slowed != step.get("slowed", session.publishes.slowed):
            raise TraceFailed(f"step {n}: {session.publishes.slowed} publishes were slowed")
    if numbers:
        raise TraceFailed(f"not drawn: {numbers}")
