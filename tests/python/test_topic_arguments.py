"""Arguments that name topics, patterns and positions."""

from __future__ import annotations

from typing import Any

import pytest

from hanzoai.pubsub import InvalidOption, InvalidTopic, PubSubClient


@pytest.mark.parametrize(
    ("topics", "more", "error", "field"),
    [
        ([], {}, InvalidOption, "topics"),
        (7, {}, InvalidOption, "topics"),
        (["a"] * 1001, {}, InvalidOption, "topics"),
        ("a..b", {}, InvalidTopic, None),
        ("a", {"after": ["a"]}, InvalidOption, "after"),
        ("a", {"after": {"a": -1}}, InvalidOption, "after[a]"),
        ("a", {"after": {"a.*": 1}}, InvalidTopic, None),
        ("a", {"at": 5}, InvalidOption, "at"),
        ("a", {"wait": 30.1}, InvalidOption, "wait"),
        ("a", {"wait": -1}, InvalidOption, "wait"),
        ("a", {"wait": "5s"}, InvalidOption, "wait"),
    ],
)
async def test_invalid_positions_are_rejected_before_they_are_sent(
    topics: Any, more: dict[str, Any], error: type[Exception], field: str | None
) -> None:
    async with PubSubClient("ws://127.0.0.1:1/ws", token="t") as ps:
        with pytest.raises(error) as refused:
            await ps.positions(topics, **more)
    if field is not None:
        assert getattr(refused.value, "field", None) == field
