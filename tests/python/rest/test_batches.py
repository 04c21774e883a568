from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic_core import to_json

from hanzoai.pubsub.errors import (
    PermissionDenied,
    ProtocolError,
)
from hanzoai.pubsub.http import calls as rest_calls
from tests.python.rest.rig import ACCEPTED, BATCH, MESSAGES, Tokens, one, problem, sent

if TYPE_CHECKING:
    from hanzoai.pubsub.http.rest import Rest


def results(*ids: str) -> httpx.Response:
    return httpx.Response(200, json={"results": [{"id": id, "timestamp": 1} for id in ids]})


async def test_many_go_in_one_request_with_one_result_each(rest: Rest, server: Any) -> None:
    refused = {"error": {"code": "forbidden", "message": "no", "topic": "c"}}
    again = {"id": "m3", "timestamp": 1, "duplicate": True}
    answer = {"results": [{"id": "m1", "timestamp": 1, "seq": 1}, refused, again]}
    route = server.post(BATCH).mock(return_value=httpx.Response(200, json=answer))
    found = await rest.publish_many([one("m1"), one("m2", topic="c"), one("m3")])
    assert [message["id"] for message in sent(route)["messages"]] == ["m1", "m2", "m3"]
    assert [(result.id, result.seq) for result in found] == [("m1", 1), ("m2", None), ("m3", None)]
    assert found[1].error is not None
    assert found[1].error.code == "forbidden"
    assert found[2].duplicate


async def test_a_result_does_not_quote_the_token(rest: Rest, server: Any, tokens: Tokens) -> None:
    tokens.token = 'header/"payload"/signature'
    message = to_json(f"no ({tokens.token}), never").replace(b"/", b"\\/")
    body = b'{"results":[{"error":{"code":"forbidden","message":' + message + b'}},{"id":"m2"}]}'
    server.post(BATCH).mock(return_value=httpx.Response(200, content=body))
    refused, accepted = await rest.publish_many([one("m1"), one("m2")])
    assert refused.error is not None
    assert refused.error.message == "no ([token]), never"
    assert accepted.id == "m2"


async def test_a_batch_is_cut_by_number_and_by_bytes() -> None:
    many = [one(f"m{n}") for n in range(2_500)]
    assert [len(c) for c in rest_calls.batches(many, [7] * 2_500)] == [1000, 1000, 500]
    assert [len(c) for c in rest_calls.batches(many[:40], [200_000] * 40)] == [20, 20]
    assert [len(c) for c in rest_calls.batches(many[:12], [300] * 12, 1_000, 1_000)] == [3] * 4
    assert [len(c) for c in rest_calls.batches(many[:2], [300] * 2, 1_000, 200)] == [1, 1]
    assert list(rest_calls.batches([], [])) == []


async def test_many_without_a_batch_operation_go_one_by_one(rest: Rest, server: Any) -> None:
    batch = server.post(BATCH).mock(return_value=httpx.Response(404))
    single = server.post(MESSAGES).mock(
        side_effect=[ACCEPTED, problem(403, "forbidden"), ACCEPTED, ACCEPTED]
    )
    found = await rest.publish_many([one("m1"), one("m2"), one("m3")])
    assert [result.error and result.error.code for result in found] == [None, "forbidden", None]
    assert [sent(single, n)["id"] for n in range(3)] == ["m1", "m2", "m3"]
    await rest.publish_many([one("m4")])
    assert batch.call_count == 1


async def test_a_peer_without_the_feature_is_not_asked_for_a_batch(rest: Rest, server: Any) -> None:
    rest.features = frozenset({"ack"})
    server.post(MESSAGES).mock(return_value=ACCEPTED)
    assert len(await rest.publish_many([one("m1"), one("m2")])) == 2


async def test_messages_after_a_failed_batch_are_reported_as_not_sent(
    rest: Rest, server: Any
) -> None:
    ids = [f"m{n}" for n in range(1_000)]
    server.post(BATCH).mock(
        side_effect=[results(*ids), *[problem(429, "rate_limited", retry_after_ms=90)] * 4]
    )
    found = await rest.publish_many([one(f"m{n}") for n in range(1_002)])
    assert [result.error for result in found[:1_000]] == [None] * 1_000
    last = found[-1]
    assert last.id == "m1001"
    assert last.error is not None
    assert (last.error.code, last.error.retry_after_ms) == ("rate_limited", 90)


async def test_a_batch_of_which_nothing_was_sent_raises(rest: Rest, server: Any) -> None:
    server.post(BATCH).mock(return_value=problem(403, "forbidden"))
    with pytest.raises(PermissionDenied):
        await rest.publish_many([one()])


@pytest.mark.parametrize("body", [{"results": []}, {"results": 3}, {}, [1]])
async def test_an_answer_that_fits_no_batch_is_a_protocol_error(
    rest: Rest, server: Any, body: Any
) -> None:
    server.post(BATCH).mock(return_value=httpx.Response(200, json=body))
    with pytest.raises(ProtocolError):
        await rest.publish_many([one()])


async def test_messages_of_a_batch_that_were_not_sent_have_a_known_outcome(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset({"batch"})  # and no idempotency: one attempt
    ids = [f"m{n}" for n in range(1_000)]
    server.post(BATCH).mock(side_effect=[results(*ids), httpx.ReadError("cut")])
    found = await rest.publish_many([one(f"m{n}") for n in range(2_500)])
    codes = [result.error and result.error.code for result in found]
    assert codes == [None] * 1_000 + ["outcome_unknown"] * 1_000 + ["timeout"] * 500
    assert [result.id for result in found[-2:]] == ["m2498", "m2499"]


async def test_a_failed_first_batch_does_not_decide_the_outcome_of_later_ones(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset({"batch"})
    server.post(BATCH).mock(side_effect=httpx.ReadError("cut"))
    found = await rest.publish_many([one(f"m{n}") for n in range(1_001)])
    assert {result.error and result.error.code for result in found[:1_000]} == {"outcome_unknown"}
    assert found[1_000].error is not None
    assert found[1_000].error.code == "timeout"
