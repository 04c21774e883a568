"""Troubleshooting lists what Python says about mixed up asyncio and blocking calls."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from hanzoai.pubsub import PubSub, PubSubClient
from tests.docs.blocks import ROOT

URL = "ws://127.0.0.1:1/ws"


def listed(text: str) -> bool:
    """Whether a row of the page begins with a text that this one contains."""
    rows = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").splitlines()
    return any(row[3:].partition("`")[0] in text for row in rows if row.startswith("| `"))


def test_the_page_has_the_error_of_a_blocking_block_with_the_asyncio_client() -> None:
    ps: Any = PubSubClient(URL, "token")
    with pytest.raises(TypeError) as caught, ps:
        pass
    assert listed(str(caught.value))


async def test_the_page_has_the_error_of_an_asyncio_block_with_the_blocking_client() -> None:
    ps: Any = PubSub(URL, "token")
    with pytest.raises(TypeError) as caught:
        async with ps:
            pass
    assert listed(str(caught.value))
    ps.close()


async def test_the_page_has_the_warning_of_a_forgotten_await() -> None:
    ps: Any = PubSubClient(URL, "token")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ps.publish("a.b", {"data": 1})
    assert [listed(str(warning.message)) for warning in caught] == [True]
    await ps.close()


async def test_the_page_has_the_errors_of_a_wrong_loop_statement() -> None:
    ps: Any = PubSubClient(URL, "token")
    subscription, pages = ps.subscribe("a.b"), ps.history("a.b")
    with pytest.raises(TypeError) as caught:
        iter(subscription)
    assert listed(str(caught.value))
    with pytest.raises(TypeError) as caught:
        await pages
    await pages.aclose()
    assert listed(str(caught.value))
    await ps.close()
