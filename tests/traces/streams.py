"""Runs the traces of `spec/traces/streams/`: the steps must cause exactly these effects and views.

A trace tests a writer or a reader of a stream. Each step calls one method with the time `at`, and
lists the effects and the state that the program then sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.streams.parts import body_of
from hanzoai.pubsub.streams.reading import Reading
from hanzoai.pubsub.streams.writing import Writing
from tests.traces.runner import TRACES, TraceFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAMS = TRACES / "streams"


def run_stream(trace: Mapping[str, Any]) -> None:
    """Run a trace.

    Raises:
        TraceFailed: A step differs from the trace.
    """
    if "writer" in trace:
        writing = Writing(**trace["writer"])
        steps = [step | write(writing, step) for step in trace["steps"]]
    else:
        reading = Reading(**trace["reader"])
        steps = [step | read(reading, step) for step in trace["steps"]]
    for n, (got, step) in enumerate(zip(steps, trace["steps"], strict=True)):
        if got != step:
            raise TraceFailed(f"step {n}\nexpected {step}\ngot      {got}")


def write(writing: Writing, step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effects of a step of a writer."""
    ((name, given),) = step["in"].items()
    at = step["at"]
    arguments: list[Any] = given if isinstance(given, list) and name != "inherit" else [given]
    if name in ("open", "sent", "tick"):
        arguments = []
    timed = [] if name in ("receive", "inherit") else [at]
    if name == "failed":
        code, retryable, *wait = arguments
        out: Any = writing.failed(code, retryable, at, *wait)
    else:
        out = getattr(writing, name)(*arguments, *timed)
    view = {"due": writing.due, "full": writing.full, "ended": writing.ended}
    more = {"parts": [dict(part) for part in writing.parts], "stats": dict(writing.stats)}
    return {"out": out, **view, **{name: more[name] for name in more.keys() & step.keys()}}


def read(reading: Reading, step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effects of a step of a reader."""
    ((name, given),) = step["in"].items()
    out: Any = getattr(reading, name)(*([] if given is None else [given]), step["at"])
    view = {**body_of(reading.parts), "next": reading.next, "stale": reading.stale}
    return {"out": out, "view": view, "due": reading.due, "ignored": reading.ignored}
