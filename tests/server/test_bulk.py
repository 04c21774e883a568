"""Bulk publishers: a separate rate limit for batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.auth.api_keys import ApiKeys
from pubsub_server.auth.identity import identity_from_claims
from pubsub_server.commands import token
from pubsub_server.errors import ServiceError
from pubsub_server.testing import running_server
from tests.server.test_rest import api, problem

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

# Rate limits that refill too slowly to matter during a test.
SLOW: dict[str, object] = {"publish_rate_service": 0.001, "publish_rate_bulk": 3.0}


async def batch(rest: httpx.AsyncClient, count: int) -> httpx.Response:
    messages = [{"topic": "demo.x", "data": n} for n in range(count)]
    return await rest.post("/v1/messages:batch", json={"messages": messages})


async def single(rest: httpx.AsyncClient) -> httpx.Response:
    return await rest.post("/v1/topics/demo.x/messages", json={"data": 1})


def accepted(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return sum("error" not in result for result in answer.json()["results"])


async def test_batches_of_bulk_and_single_publishes_have_budgets_apart() -> None:
    settings = {**SLOW, "publish_rate_bulk": 0.001, "publish_burst": 3_000_000}
    async with (
        running_server(**settings) as server,
        api(server, server.service_token(bulk=True)) as rest,
    ):
        assert accepted(await batch(rest, 2)) == 2
        assert accepted(await batch(rest, 2)) == 1
        refused = await batch(rest, 2)
        body = problem(refused, 429, "rate_limited")
        assert body["retry_after_ms"] == 2_000
        assert refused.headers["Retry-After"] == "2"
        assert [(await single(rest)).status_code for _ in range(4)] == [201, 201, 201, 429]


async def test_without_bulk_batches_and_single_publishes_share_one_budget() -> None:
    settings = {**SLOW, "publish_rate_service": 0.001, "publish_burst": 3_000_000}
    async with (
        running_server(**settings) as server,
        api(server, server.service_token()) as rest,
    ):
        assert accepted(await batch(rest, 2)) == 2
        assert [(await single(rest)).status_code for _ in range(2)] == [201, 429]
        # Each item counts, as usual.
        assert accepted(await batch(rest, 2)) == 0


async def test_the_session_gives_bulk_publishers_their_batch_rate() -> None:
    async with running_server(publish_rate_bulk=5_000, publish_rate_service=100) as server:
        limits: list[dict[str, Any]] = []
        for bulk in (True, False):
            async with api(server, server.service_token(bulk=bulk)) as rest:
                limits.append((await rest.get("/v1/session")).json()["limits"])
        assert [each["publish_rate"] for each in limits] == [100, 100]
        assert [each.get("bulk_rate") for each in limits] == [5_000, None]


def test_the_claim_is_true_or_false() -> None:
    assert identity_from_claims({"sub": "spark", "bulk": True}).bulk
    assert not identity_from_claims({"sub": "spark"}).bulk
    assert identity_from_claims({"sub": "spark", "batch_job": True}, {"bulk": "batch_job"}).bulk
    with pytest.raises(ServiceError, match="`bulk` of the token is not true or false"):
        identity_from_claims({"sub": "spark", "bulk": "yes"})


async def test_an_api_key_may_be_for_bulk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert token.run(["--user", "spark", "--service", "--bulk", "--api-key"]) == 0
    made = json.loads(capsys.readouterr().out)
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [made["entry"]]}))
    assert (await ApiKeys(file).authenticate(made["key"])).bulk
