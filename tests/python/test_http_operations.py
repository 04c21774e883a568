"""HTTP operations of a client: pages, order, and the detection of an HTTP API."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    ClosedError,
    InvalidOption,
    NotFound,
    OperationTimeout,
    Unavailable,
    Unsupported,
)
from hanzoai.pubsub.generated.wire import Limits, Message
from hanzoai.pubsub.runtime.environment import Environment
from hanzoai.pubsub.runtime.inbox import Deliveries
from hanzoai.pubsub.runtime.operations import HttpApi
from hanzoai.pubsub.runtime.publisher import Publisher, prepare
from hanzoai.pubsub.runtime.tokens import TokenSource
from hanzoai.pubsub.session.ports import Acked, Publish
from hanzoai.pubsub.session.ports import Peer as ServerPeer
from hanzoai.pubsub.settings.options import RetryOptions, read_options
from hanzoai.pubsub.testing import VirtualClock
from hanzoai.pubsub.values import Published

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable


class Peer:
    """An HTTP API with prepared responses."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.random: Callable[[], float] = lambda: 0.0
        self.requests: list[httpx.Request] = []
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda request: ok({})

    async def accept(self, client: Any, transport: Any) -> Any:
        raise AssertionError("no socket here")

    def http_transport(self) -> httpx.AsyncBaseTransport:
        def handle(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return self.answer(request)

        return httpx.MockTransport(handle)


def ok(body: object) -> httpx.Response:
    return httpx.Response(200, json=body)


ITEMS = [prepare("a", {"data": n}, 100) for n in range(2)]


def publishing(data: int) -> Publish:
    item = prepare("a", {"data": data}, 100)
    return Publish(data, (item.publication,), item.size)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
async def api(peer: Peer) -> AsyncGenerator[HttpApi]:
    settings: Any = {"retry": RetryOptions(base=0.001, cap=0.001), "history_page": 3}
    options = read_options("ws://127.0.0.1/ws", "t", settings=settings)
    environment = Environment(peer.clock, peer.random, peer)

    def timeout_of(timeout: float) -> float:
        return timeout

    driver: Any = SimpleNamespace(
        options=options,
        environment=environment,
        tokens=TokenSource(options, peer.clock),
        peer=None,
        timeout_of=timeout_of,
        check_open=lambda: None,
        is_finished=False,
        clock=peer.clock,
        limits=Limits(),
        number=itertools.count(1).__next__,
        deliveries=Deliveries(),
    )
    api = HttpApi(driver)
    yield api
    await api.close(0)


def envelope(seq: int) -> dict[str, object]:
    return {"id": f"m{seq}", "topic": "a", "type": "t", "data": seq, "timestamp": seq, "seq": seq}


def log(first: int, last: int) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        query = request.url.params
        kept = list(range(first, last + 1))
        if "before" in query:
            kept = [seq for seq in kept if seq < int(query["before"][1:])]
        if "after" in query:
            kept = [seq for seq in kept if seq > int(query["after"])]
            page = kept[: int(query["limit"])]
        else:
            page = kept[-int(query["limit"]) :]
        return ok({"messages": list(map(envelope, page)), "has_more": len(page) < len(kept)})

    return answer


def altered(
    whole: Callable[[httpx.Request], httpx.Response],
    change: Callable[[dict[str, Any]], None],
    *,
    with_positions: bool = True,
) -> Callable[[httpx.Request], httpx.Response]:
    """Answer with changed messages, and end before `before_seq` if the peer has positions."""

    def answer(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        if with_positions and "before_seq" in query:
            query["before"] = f"m{query['before_seq']}"
        body = json.loads(whole(httpx.Request("GET", "http://a", params=query)).content)
        for message in body["messages"]:
            change(message)
        return ok(body)

    return answer


def malformed(seqs: range, left_out: tuple[str, ...]) -> Callable[[dict[str, Any]], None]:
    """Return a change: messages at these positions lack `topic` and these members."""

    def change(message: dict[str, Any]) -> None:
        if message["seq"] in seqs:
            for name in ("topic", *left_out):
                del message[name]

    return change


def given_history(api: HttpApi, **arguments: Any) -> AsyncIterator[Message]:
    given: dict[str, Any] = {
        "since": None, "before": None, "after": None, "limit": None, "timeout": 5, **arguments,
    }  # fmt: skip
    return api.history("a", **given)


async def read(api: HttpApi, **arguments: Any) -> list[int]:
    return [message.data async for message in given_history(api, **arguments)]


async def test_pages_are_joined_oldest_first(api: HttpApi, peer: Peer) -> None:
    peer.answer = log(1, 10)
    assert await read(api) == list(range(1, 11))
    assert len(peer.requests) == 4
    assert await read(api, limit=4) == [7, 8, 9, 10]
    assert await read(api, limit=2, before="m5") == [3, 4]
    assert await read(api, limit=0) == []
    assert len(await read(api, limit=2**64)) == 10
    with pytest.raises(InvalidOption, match="`limit` is str, not a number") as caught:
        await read(api, limit="5")
    assert caught.value.remedy == "Give a number of messages, 0 or more."


async def test_with_a_position_pages_are_read_as_the_iteration_goes_on(
    api: HttpApi, peer: Peer
) -> None:
    peer.answer = log(1, 10)
    pages = api.history("a", since=None, before=None, after=4, limit=None, timeout=5)
    assert (await anext(pages)).data == 5
    assert len(peer.requests) == 1
    assert [message.data async for message in pages] == [6, 7, 8, 9, 10]
    assert await read(api, after=4, limit=4) == [5, 6, 7, 8]


@pytest.mark.parametrize("ids", [3, 6])
async def test_messages_of_several_senders_with_the_same_ids_are_all_read(
    api: HttpApi, peer: Peer, ids: int
) -> None:
    def rename(message: dict[str, Any]) -> None:
        message["id"] = f"m{message['seq'] % ids}"

    peer.answer = altered(log(1, 12), rename)
    assert await read(api) == list(range(1, 13))
    assert await read(api, limit=8) == list(range(5, 13))
    assert await read(api, after=0) == list(range(1, 13))


async def test_history_ends_before_a_message_a_result_a_position_or_an_id(
    api: HttpApi, peer: Peer
) -> None:
    whole = log(1, 10)

    def answer(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        if "before_seq" in query:
            query["before"] = f"m{query.pop('before_seq')}"
        return whole(httpx.Request("GET", "http://a", params=query))

    peer.answer = answer
    (fifth,) = [message async for message in given_history(api, after=4, limit=1)]
    peer.requests.clear()
    for before in (fifth, Published("m5", seq=5), 5, "m5"):
        assert await read(api, before=before) == [1, 2, 3, 4]
    firsts = [dict(request.url.params) for request in peer.requests[::2]]
    both = {"before": "m5", "before_seq": "5", "limit": "3"}
    only = [{name: value for name, value in both.items() if name != out} for out in both]
    assert firsts == [both, both, only[0], only[1]]
    assert await read(api, before=fifth, limit=1) == [4]


@pytest.mark.parametrize("seq", [9, None])
async def test_a_peer_that_cannot_end_before_a_position_is_reported(
    api: HttpApi, peer: Peer, seq: int | None
) -> None:
    peer.answer = lambda request: ok({"messages": [envelope(9) | {"seq": seq}], "has_more": False})
    with pytest.raises(Unsupported, match="before a position") as caught:
        await read(api, before=9)
    assert (caught.value.topic, caught.value.field) == ("a", "before")


@pytest.mark.parametrize(
    ("arguments", "field", "problem"),
    [
        ({"before": 5, "after": 4}, "after", "cannot be used together with `before`"),
        ({"before": -1}, "before", "is out of range"),
        ({"before": True}, "before", "is bool, not a number"),
        ({"before": 1.5}, "before", "is float"),
        ({"before": ""}, "before", "is empty"),
        ({"before": {"id": "m5"}}, "before", "is dict"),
        (
            {"before": Message.model_validate(envelope(5) | {"topic": "b"})},
            "before",
            "of the topic b",
        ),
        ({"before": Message.model_validate(envelope(5) | {"ttl": 0})}, "before", "`ttl` 0"),
    ],
)
async def test_what_history_cannot_end_before_is_rejected(
    api: HttpApi, peer: Peer, arguments: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem) as caught:
        await read(api, **arguments)
    assert caught.value.field == field
    assert caught.value.remedy
    assert not peer.requests


async def test_a_peer_without_positions_to_end_before_gets_the_id(api: HttpApi, peer: Peer) -> None:
    peer.answer = log(1, 7)
    assert await read(api) == list(range(1, 8))
    sent = [dict(request.url.params) for request in peer.requests]
    assert sent[1:] == [
        {"before": f"m{seq}", "before_seq": str(seq), "limit": "3"} for seq in (5, 2)
    ]


async def test_a_peer_that_ignores_the_position_is_not_asked_forever(
    api: HttpApi, peer: Peer
) -> None:
    newest: list[dict[str, object]] = [
        {"id": "m9", "topic": "a", "type": "t", "data": 9, "timestamp": 9}
    ]
    peer.answer = lambda request: ok({"messages": newest, "has_more": True})
    assert await read(api, after=4) == [9]
    assert len(peer.requests) == 2
    assert await read(api) == [9]
    assert await read(api, limit=3) == [9]
    newest.append(envelope(10))
    assert await read(api) == [9, 10]
    assert await read(api, after=4) == [9, 10]


@pytest.mark.parametrize("left_out", [(), ("seq",), ("id",)])
async def test_a_page_with_only_malformed_messages_does_not_end_the_history(
    api: HttpApi, peer: Peer, left_out: tuple[str, ...]
) -> None:
    peer.answer = altered(log(1, 12), malformed(range(4, 10), left_out))
    assert await read(api) == [1, 2, 3, 10, 11, 12]
    if "seq" not in left_out:
        assert await read(api, after=0) == [1, 2, 3, 10, 11, 12]


@pytest.mark.parametrize("at", [6, 7])
@pytest.mark.parametrize("left_out", [(), ("id",), ("seq",), ("id", "seq")])
@pytest.mark.parametrize("with_positions", [False, True])
async def test_a_malformed_message_at_the_end_of_a_page_does_not_end_the_history(
    api: HttpApi, peer: Peer, at: int, left_out: tuple[str, ...], with_positions: bool
) -> None:
    change = malformed(range(at, at + 1), left_out)
    peer.answer = altered(log(1, 12), change, with_positions=with_positions)
    others = [seq for seq in range(1, 13) if seq != at]
    assert await read(api) == others
    assert await read(api, after=0) == others


async def test_history_ends_where_no_message_of_a_page_shows_its_place(
    api: HttpApi, peer: Peer
) -> None:
    # Without this end, the client would ask forever.
    peer.answer = lambda _request: ok(
        {"messages": [{"id": True, "seq": -1}, 5], "has_more": len(peer.requests) < 50}
    )
    assert await read(api) == []
    assert await read(api, after=0) == []
    assert len(peer.requests) == 2


async def test_a_peer_that_ignores_where_to_begin_repeats_no_message(
    api: HttpApi, peer: Peer
) -> None:
    peer.answer = lambda _request: ok({"messages": [envelope(9)], "has_more": True})
    assert await read(api, after=9) == []


async def test_servers_with_different_positions_that_answer_in_turn_are_reported(
    api: HttpApi, peer: Peer
) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        begin = 10 if len(peer.requests) % 2 else 1
        messages = [envelope(begin + n) for n in range(3)]
        # Without this end, the client would ask forever.
        return ok({"messages": messages, "has_more": len(peer.requests) < 50})

    peer.answer = answer
    with pytest.raises(Unsupported, match="answer in turn") as caught:
        await read(api, after=0)
    assert caught.value.remedy
    assert len(peer.requests) == 4


@pytest.mark.parametrize("more", [False, True])
async def test_where_everything_older_expires_meanwhile_the_newer_page_is_given(
    api: HttpApi, peer: Peer, more: bool
) -> None:
    whole = log(1, 6)

    def answer(request: httpx.Request) -> httpx.Response:
        older = "before" in request.url.params
        return ok({"messages": [], "has_more": more}) if older else whole(request)

    peer.answer = answer
    assert await read(api) == [4, 5, 6]


async def test_where_the_oldest_is_trimmed_meanwhile_what_there_is_is_given(
    api: HttpApi, peer: Peer
) -> None:
    whole = log(1, 6)

    def answer(request: httpx.Request) -> httpx.Response:
        if "before" in request.url.params:
            return httpx.Response(404, json={"code": "not_found", "title": "", "status": 404})
        return whole(request)

    peer.answer = answer
    assert await read(api) == [4, 5, 6]
    with pytest.raises(NotFound):
        await read(api, before="m9")


async def test_publishes_over_http_keep_the_order_of_their_calls(api: HttpApi, peer: Peer) -> None:
    order: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        order.append(json.loads(request.content)["data"])
        return ok({"id": f"m{order[-1]}", "timestamp": 1})

    peer.answer = answer
    calls = [api.publish(publishing(n), peer.clock.now() + 5, certain=True) for n in range(20)]
    results = await asyncio.gather(*calls)
    assert order == list(range(20))
    assert all(isinstance(result, Acked) for result in results)


async def test_a_publish_waits_for_earlier_ones_no_longer_than_its_timeout(
    api: HttpApi, peer: Peer
) -> None:
    released = asyncio.Event()
    sent: list[object] = []

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(json.loads(request.content)["data"])
            await released.wait()
            return ok({"id": "m", "timestamp": 1})

    def publish(data: int, seconds: float) -> asyncio.Task[Acked | None]:
        return asyncio.create_task(
            api.publish(publishing(data), peer.clock.now() + seconds, certain=True)
        )

    api.rest._transport = Slow()
    first, second, third = publish(1, 60), publish(2, 0.01), publish(3, 60)
    async with asyncio.timeout(60):
        with pytest.raises(OperationTimeout) as caught:
            await second
    late = caught.value
    assert (late.topic, late.outcome_unknown, first.done()) == ("a", False, False)
    released.set()
    async with asyncio.timeout(60):
        await asyncio.gather(first, third)
    assert sent == [1, 3]


async def test_the_check_of_the_api_and_the_publish_share_one_timeout(
    api: HttpApi, peer: Peer
) -> None:
    class Late(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                await asyncio.Event().wait()
            await peer.clock.advance(59.75)
            return ok({"messages": [], "has_more": False})

    api.rest._transport = Late()
    with pytest.raises(OperationTimeout, match=r"within 0\.25 s") as caught:
        await api.publish(publishing(1), peer.clock.now() + 60, certain=False)
    assert caught.value.outcome_unknown


async def test_a_check_of_the_api_leaves_time_for_the_connection(
    api: HttpApi, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    api.rest._transport = Silent()
    limits: list[float] = []
    perform = api.rest.perform

    def spy(*args: Any, timeout: float, **options: Any) -> Any:
        limits.append(timeout)
        return perform(*args, timeout=timeout, **options)

    monkeypatch.setattr(api.rest, "perform", spy)
    assert await api.publish(publishing(1), peer.clock.now() + 0.1, certain=False) is None
    assert limits == [pytest.approx(0.05)]


async def test_an_unsure_client_asks_once_whether_the_api_is_there(
    api: HttpApi, peer: Peer
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(426, text="Upgrade Required")

    peer.answer = answer
    assert await api.publish(publishing(1), peer.clock.now() + 5, certain=False) is None
    assert await api.publish(publishing(1), peer.clock.now() + 5, certain=False) is None
    assert [request.method for request in peer.requests] == ["GET"]
    await peer.clock.advance(61)
    peer.answer = lambda request: ok({"id": "m", "timestamp": 1, "messages": [], "has_more": False})
    assert isinstance(await api.publish(publishing(1), peer.clock.now() + 5, certain=False), Acked)


async def test_an_api_that_forbids_the_question_is_there(api: HttpApi, peer: Peer) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(403, json={"code": "forbidden", "title": "", "status": 403})
        return ok({"id": "m", "timestamp": 1})

    peer.answer = answer
    assert isinstance(await api.publish(publishing(1), peer.clock.now() + 5, certain=False), Acked)


async def test_an_error_of_the_request_is_the_result_of_each_item(api: HttpApi, peer: Peer) -> None:
    peer.answer = lambda request: httpx.Response(503, headers={"Retry-After": "0"})
    publisher = Publisher(api._driver, api.publish)
    task = asyncio.create_task(publisher.publish_many(ITEMS, timeout=5, via="rest"))
    await peer.clock.advance(1)
    async with asyncio.timeout(60):
        results = await task
    assert [type(result) for result in results] == [Unavailable, Unavailable]


async def test_a_lost_answer_is_unknown_where_the_peer_publishes_no_id_once(
    api: HttpApi, peer: Peer
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("cut")

    peer.answer = answer
    api._driver.peer = ServerPeer(client_id="c")
    with pytest.raises(OperationTimeout) as caught:
        await api.publish(publishing(1), peer.clock.now() + 5, certain=True)
    assert caught.value.outcome_unknown
    assert len(peer.requests) == 1


async def test_a_batch_that_ran_out_of_time_is_unknown_for_each_of_its_messages(
    api: HttpApi, peer: Peer
) -> None:
    hangs = asyncio.Event()

    class Hanging(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await hangs.wait()
            raise AssertionError("cancelled before")

    api.rest._transport = Hanging()
    results = await Publisher(api._driver, api.publish).publish_many(
        ITEMS, timeout=0.05, via="rest"
    )
    for item, result in zip(ITEMS, results, strict=True):
        assert isinstance(result, OperationTimeout)
        assert result.outcome_unknown
        assert result.id == item.id


async def test_requests_after_the_close_open_no_connection(api: HttpApi, peer: Peer) -> None:
    peer.answer = log(1, 10)
    pages = api.history("a", since=None, before=None, after=0, limit=None, timeout=5)
    await anext(pages)
    await api.close(0)
    with pytest.raises(ClosedError):
        await read(api)
    with pytest.raises(ClosedError):
        _ = [message async for message in pages]
    assert len(peer.requests) == 1
