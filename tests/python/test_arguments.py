"""Invalid arguments are rejected by name, with a valid alternative."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from hanzoai.pubsub import (
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    PermissionDenied,
    PubSubClient,
    PubSubError,
)
from hanzoai.pubsub.testing import MemoryServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


CALLS: list[Callable[[PubSubClient, Any], Awaitable[object]]] = [
    lambda ps, t: ps.connect(t),
    lambda ps, t: ps.publish("a.b", {"data": 1}, timeout=t),
    lambda ps, t: ps.publish("a.b", {"data": 1}, timeout=t, via="rest"),
    lambda ps, t: ps.publish_many([("a.b", {"data": 1})], timeout=t),
    lambda ps, t: ps.presence("a.b", timeout=t),
    lambda ps, t: anext(ps.history("a.b", timeout=t)),
]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "5", 1e9])
@pytest.mark.parametrize("call", CALLS)
async def test_a_timeout_in_which_nothing_can_be_done_is_refused(
    pubsub_memory: MemoryServer,
    call: Callable[[PubSubClient, Any], Awaitable[object]],
    timeout: object,
) -> None:
    with pytest.raises(InvalidOption) as caught:
        await call(pubsub_memory.client(), timeout)
    assert caught.value.field == "timeout"


async def test_closing_may_take_no_time_but_not_less(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    with pytest.raises(InvalidOption):
        await ps.close(-1)
    assert ps.state == "connected"
    await ps.close(0)


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("type", 7, "1 to 128 characters"),
        ("ttl", "60", "whole seconds"),
        ("id", "", "1 to 128 characters"),
        ("meta", "x", "dict"),
    ],
)
async def test_a_wrong_field_of_a_message_is_refused_with_what_it_takes(
    pubsub_memory: MemoryServer, field: str, wrong: object, right: str
) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(InvalidOption) as caught:
        await ps.publish("a.b", {"data": 1, field: wrong})
    assert caught.value.field == field
    assert right in caught.value.remedy
    with pytest.raises(InvalidOption, match="128 characters"):
        await ps.publish("a.b", {"data": 1}, id="")


@pytest.mark.parametrize(
    ("item", "error", "field"),
    [
        (("a.b", {"data": {1}}), InvalidPayload, "[2].data"),
        (("a.b", {"data": {"x": [{1}]}}), InvalidPayload, "[2].data.x[0]"),
        (("a.*", {"data": 1}), InvalidTopic, "[2].topic"),
        ({"topic": "a.b", "data": 1, "ttl": -1}, InvalidOption, "[2].ttl"),
        ("a.b", InvalidPayload, "[2]"),
        ((5, {"data": 1}), InvalidTopic, "[2].topic"),
        ({"data": 1}, InvalidTopic, "[2].topic"),
    ],
)
async def test_the_error_of_one_of_many_names_its_index(
    pubsub_memory: MemoryServer, item: Any, error: type[PubSubError], field: str
) -> None:
    good = ("a.b", {"data": 1})
    with pytest.raises(error, match=r"^Item 2: ") as caught:
        await pubsub_memory.client().publish_many([good, good, item])
    assert caught.value.field == field


async def test_one_of_many_without_a_topic_is_reported_with_what_to_pass(
    pubsub_memory: MemoryServer,
) -> None:
    with pytest.raises(InvalidTopic, match=r"^Item 0: It has no `topic`\. Give \(topic, "):
        await pubsub_memory.client().publish_many(cast("Any", [{"data": 1}]))


@pytest.mark.parametrize("wrong", [None, 5, print, {"topic": "a.b", "data": 1}])
async def test_messages_that_are_no_list_are_refused_with_what_to_pass(
    pubsub_memory: MemoryServer, wrong: Any
) -> None:
    with pytest.raises(InvalidOption, match="not a list") as caught:
        await pubsub_memory.client().publish_many(wrong)
    assert caught.value.field == "messages"


@pytest.mark.parametrize("wrong", [5, ["k"], "\ud800"])
async def test_a_key_that_is_no_text_is_refused(pubsub_memory: MemoryServer, wrong: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        await pubsub_memory.client().publish("a.b", {"data": 1}, key=wrong)
    assert caught.value.field == "key"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *[("limit", wrong) for wrong in ("5", 2.5, -1, True, [1])],
        *[("after", wrong) for wrong in ("5", 2.5, -1, {"a.b": 1})],
        *[("before", wrong) for wrong in (2.5, True, b"msg_1", "\ud800")],
    ],
)
async def test_a_wrong_bound_of_a_history_is_refused_at_the_call(
    pubsub_memory: MemoryServer, field: str, wrong: Any
) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(InvalidOption) as caught:
        ps.history("a.b", **{field: wrong})
    assert caught.value.field == field


async def test_the_limit_of_a_history_may_be_larger_than_any_history(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    await ps.publish("a.b", {"data": 1})
    assert [message.data async for message in ps.history("a.b", limit=sys.maxsize)] == [1]
    await ps.close()


@pytest.mark.parametrize(
    ("field", "wrong"), [("limit", "5"), ("limit", 0), ("prefix", 5), ("prefix", "\ud800")]
)
async def test_a_wrong_bound_of_the_topics_is_refused(
    pubsub_memory: MemoryServer, field: str, wrong: Any
) -> None:
    with pytest.raises(InvalidOption) as caught:
        await pubsub_memory.client().topics(**{field: wrong})
    assert caught.value.field == field


async def test_an_error_shows_no_text_that_a_terminal_cannot_print(
    pubsub_memory: MemoryServer,
) -> None:
    with pytest.raises(InvalidOption) as caught:
        await pubsub_memory.client().publish("a.b", {"data": 1, "\ud800": 1})
    assert str(caught.value).encode()
    assert caught.value.field == "\\ud800"


async def test_topics_without_a_truth_value_are_refused(pubsub_memory: MemoryServer) -> None:
    class Array:
        """As in numpy."""

        def __eq__(self, other: object) -> bool:
            raise ValueError("The truth value of an array is ambiguous.")

        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(InvalidOption, match="`topics` is Array"):
        pubsub_memory.client().subscribe(Array())  # type: ignore[arg-type]


async def test_seconds_instead_of_milliseconds_are_refused(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(InvalidOption, match="not a Unix time in milliseconds"):
        ps.subscribe("a.b", since=int(time.time()))
    with pytest.raises(InvalidOption, match="not a Unix time in milliseconds"):
        await anext(ps.history("a.b", since=int(time.time())))
    await ps.subscribe("a.b", since=0, on_message=print)


@pytest.mark.parametrize("name", ["on_message", "on_presence", "on_gap", "state_loader"])
@pytest.mark.parametrize("wrong", ["x", lambda: None])
async def test_a_handler_that_cannot_be_called_is_refused_at_once(
    pubsub_memory: MemoryServer, name: str, wrong: Any
) -> None:
    with pytest.raises(InvalidOption) as caught:
        pubsub_memory.client().subscribe("a.b", **{name: wrong})
    assert caught.value.field == name
    assert "function" in caught.value.remedy


async def test_a_pattern_instead_of_a_topic_is_refused_with_its_purpose(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    for call in (
        lambda: anext(ps.history("demo.*")),
        lambda: ps.presence("demo.*"),
        lambda: ps.publish("demo.*", {"data": 1}),
    ):
        with pytest.raises(InvalidTopic, match="Use the full name of one topic") as caught:
            await call()
        assert "are for subscriptions" in caught.value.remedy


async def test_the_error_of_listing_topics_as_a_user_names_who_may_list_them(
    pubsub_memory: MemoryServer,
) -> None:
    with pytest.raises(PermissionDenied, match="`hanzo-pubsub token --user NAME --admin`"):
        await pubsub_memory.client(pubsub_memory.token("alice")).topics()


def test_the_error_of_an_unknown_option_names_where_options_are_listed() -> None:
    with pytest.raises(InvalidOption) as caught:
        PubSubClient("ws://127.0.0.1/ws", "t", qqqqqq=1)  # type: ignore[call-arg]
    assert caught.value.remedy == "hanzoai.pubsub.Settings lists all options."


def test_a_frame_that_no_server_sends_cannot_be_lost() -> None:
    server = MemoryServer()
    with pytest.raises(InvalidOption, match="Did you mean `published`"):
        server.lose_next("publishd")
    with pytest.raises(InvalidOption):
        server.lose_next("published", 0)
    server.lose_next("pong", 2)
