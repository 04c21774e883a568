from __future__ import annotations

from typing import Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    InvalidPayload,
    ProtocolError,
)
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import (
    ACCEPTED,
    BATCH,
    MESSAGES,
    OLD,
    QuickClock,
    Tokens,
    make_options,
    one,
    sent,
)


async def test_a_publish_carries_its_id_as_idempotency_key(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    result = await rest.publish(
        Publication(topic="a.b", type="t", data=None, ttl=5, id="msg_1", meta={"k": 1})
    )
    assert (result.id, result.timestamp, result.seq, result.duplicate) == ("msg_1", 9, 3, None)
    request = route.calls[0].request
    assert request.headers["Idempotency-Key"] == "msg_1"
    assert request.headers["Authorization"] == f"Bearer {OLD}"
    assert request.headers["User-Agent"].startswith("hanzoai.pubsub/")
    assert sent(route) == {"type": "t", "data": None, "ttl": 5, "id": "msg_1", "meta": {"k": 1}}


@pytest.mark.parametrize("id", ["é", "日本", "a b", " a", "a\nb"])
async def test_an_id_that_a_header_cannot_carry_is_in_the_body_alone(
    rest: Rest, server: Any, id: str
) -> None:
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    await rest.publish(one(id=id))
    assert "Idempotency-Key" not in route.calls[0].request.headers
    assert sent(route)["id"] == id


@pytest.mark.parametrize("token", ["abc", "Bearer abc", "bearer  abc"])
async def test_the_word_bearer_is_sent_once(server: Any, token: str) -> None:
    tokens = Tokens()
    tokens.token = token
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    rest = Rest(make_options(), tokens, QuickClock())
    await rest.publish(one())
    assert route.calls[0].request.headers["Authorization"] == "Bearer abc"
    await rest.close()


PAGE = httpx.Response(200, html="<!doctype html><title>Log in</title>")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (PAGE, "HTTP 200 and an HTML page"),
        (httpx.Response(200), "HTTP 200 and an empty body"),
        (httpx.Response(204), "HTTP 204 and an empty body"),
        (httpx.Response(202, json={}), "HTTP 202 and JSON"),
        (httpx.Response(200, json=[1]), "HTTP 200 and JSON"),
        (httpx.Response(200, text="ok"), "HTTP 200 and text/plain"),
        (httpx.Response(201, json={"id": "server-1"}), "HTTP 201 and JSON"),
        (httpx.Response(201, json={"timestamp": 1}), "HTTP 201 and JSON"),
        (httpx.Response(201, json={"id": "server-1", "timestamp": "odd"}), "HTTP 201 and JSON"),
        (httpx.Response(302, headers={"Location": "/login"}), "HTTP 302 and a redirect"),
    ],
)
async def test_an_answer_that_is_not_that_of_a_server_confirms_no_publish(
    rest: Rest, server: Any, answer: httpx.Response, expected: str
) -> None:
    route = server.post(MESSAGES).mock(return_value=answer)
    with pytest.raises(ProtocolError) as caught:
        await rest.publish(one())
    assert "127.0.0.1:8056 answered" in str(caught.value)
    assert expected in str(caught.value)
    assert caught.value.topic == "a.b"
    assert route.call_count == 1


async def test_a_message_of_a_batch_without_a_result_is_not_confirmed(
    rest: Rest, server: Any
) -> None:
    results = [{"id": "msg_1", "timestamp": 5}, {}]
    server.post(BATCH).mock(return_value=httpx.Response(200, json={"results": results}))
    first, second = await rest.publish_many([one(), one("msg_2")])
    assert (first.id, first.error) == ("msg_1", None)
    assert second.error is not None
    assert (second.id, second.error.code) == ("msg_2", "outcome_unknown")


async def test_a_repeated_publish_is_marked_as_a_duplicate(rest: Rest, server: Any) -> None:
    body = {"id": "msg_1", "timestamp": 9, "duplicate": True}
    server.post(MESSAGES).mock(return_value=httpx.Response(200, json=body))
    assert (await rest.publish(one())).duplicate is True


async def test_bad_payloads_are_refused_before_anything_is_sent(rest: Rest) -> None:
    with pytest.raises(InvalidPayload):
        await rest.publish(one(data={"x": float("nan")}))
    with pytest.raises(InvalidPayload):
        await rest.publish_many([one(data={"x": float("nan")})])
