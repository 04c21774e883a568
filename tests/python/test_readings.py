"""The cases of `spec/readings.json`, which each language runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hanzoai.pubsub.wire.codec import Malformed, Unknown, decode, decode_event
from tests.traces.mapping import canonical

READINGS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "spec" / "readings.json").read_text(encoding="utf-8")
)["readings"]


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: ascii(reading["why"]))
def test_a_text_is_read_as_the_spec_says(reading: dict[str, Any]) -> None:
    text, event = reading["text"], reading.get("event")
    got = decode(text) if event is None else decode_event(event, text)
    if isinstance(got, Malformed):
        reason = "not JSON" if got.reason.startswith("not JSON") else got.reason
        assert reason == reading.get("malformed")
    elif isinstance(got, Unknown):
        assert got.type == reading.get("unknown")
    else:
        assert canonical(got.wire()) == canonical(reading.get("frame"))


def test_no_two_readings_have_the_same_name() -> None:
    names = [reading["why"] for reading in READINGS]
    assert len(names) == len(set(names))
    assert len(names) > 150
