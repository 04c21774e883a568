from __future__ import annotations

from typing import Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    InvalidPayload,
    PayloadTooLarge,
)
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import (
    ACCEPTED,
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


@pytest.mark.parametrize("token", ["abc", "Bearer abc", "bearer  abc"])
async def test_the_word_bearer_is_sent_once(server: Any, token: str) -> None:
    tokens = Tokens()
    tokens.token = token
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    rest = Rest(make_options(), tokens, QuickClock())
    await rest.publish(one())
    assert route.calls[0].request.headers["Authorization"] == "Bearer abc"
    await rest.close()


@pytest.mark.parametrize(
    ("answer", "id"),
    [
        (httpx.Response(202, json={}), "msg_1"),
        (httpx.Response(204), "msg_1"),
        (httpx.Response(200, text="ok"), "msg_1"),
        (httpx.Response(200, json=[1]), "msg_1"),
        (httpx.Response(201, json={"id": "server-1", "timestamp": "odd"}), "server-1"),
    ],
)
async def test_a_publish_that_was_taken_is_taken_whatever_the_answer_looks_like(
    rest: Rest, server: Any, answer: httpx.Response, id: str
) -> None:
    server.post(MESSAGES).mock(return_value=answer)
    assert (await rest.publish(one())).id == id


async def test_a_repeat_is_told(rest: Rest, server: Any) -> None:
    body = {"id": "msg_1", "timestamp": 9, "duplicate": True}
    server.post(MESSAGES).mock(return_value=httpx.Response(200, json=body))
    assert (await rest.publish(one())).duplicate is True


async def test_bad_payloads_are_refused_before_anything_is_sent(rest: Rest) -> None:
    with pytest.raises(InvalidPayload):
        await rest.publish(one(data={"x": float("nan")}))
    with pytest.raises(PayloadTooLarge):
        await rest.publish_many([one(data="x" * 300_000)])
