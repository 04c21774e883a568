"""Payloads of byte protocols become JSON if HIP-56 can carry them."""

from __future__ import annotations

import pytest

from pubsub_server.listeners import byte_topics
from pubsub_server.listeners.byte_topics import hub_payload


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [
        (b"[1,2]", b"[1,2]"),
        (b"abc", b'"abc"'),
        (b"abcd", None),
        (b"[1,23]", None),
        (b"\xff", None),
    ],
)
def test_the_limit_applies_to_the_json_of_a_payload(payload: bytes, encoded: bytes | None) -> None:
    assert hub_payload(payload, 5) == encoded


def test_a_payload_above_the_limit_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(byte_topics, "to_json")
    assert hub_payload(b"[" + b"0," * 1000 + b"0]", 5) is None
