"""The functions against a real server, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import Conflict, InvalidPayload, PermissionDenied, PubSubError
from hanzoai.pubsub.spark import PubSubConfig, publish_partition
from hanzoai.pubsub.testing import ThreadedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

tokens: list[Callable[[], str]] = []


def provide() -> str:
    make = tokens.pop(0)
    tokens.append(make)
    return make()


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with ThreadedServer(publish_rate_service=500, history_max_messages=10_000) as running:
        tokens[:] = [running.service_token]
        yield running


def config(server: ThreadedServer, **changes: Any) -> PubSubConfig:
    settings: dict[str, Any] = {"credential_provider": f"{__name__}:provide", **changes}
    return PubSubConfig(server.http, **settings)


def rows(count: int) -> list[dict[str, str]]:
    return [{"topic": "jobs.rows", "data": json.dumps({"n": n})} for n in range(count)]


def stored(server: ThreadedServer, topic: str = "jobs.rows") -> list[Any]:
    found: list[Any] = []
    after = 0
    while True:
        answer = httpx.get(
            f"{server.http}/v1/topics/{topic}/history",
            params={"after": after, "limit": 500},
            headers={"Authorization": f"Bearer {server.admin_token()}"},
            trust_env=False,
            timeout=60,
        )
        page = answer.raise_for_status().json()
        found += [message["data"] for message in page["messages"]]
        if not page["has_more"]:
            return found
        after = page["messages"][-1]["seq"]


def test_rows_beyond_the_rate_of_the_server_are_published_once_and_in_order(
    server: ThreadedServer,
) -> None:
    stats = publish_partition(rows(1_200), config(server, max_in_flight=1))
    assert (stats.rows, stats.duplicates) == (1_200, 0)
    assert stats.retries > 0
    assert [each["n"] for each in stored(server)] == list(range(1_200))


def test_requests_in_flight_beyond_the_rate_lose_and_repeat_nothing(
    server: ThreadedServer,
) -> None:
    stats = publish_partition(rows(1_200), config(server, batch_size=200))
    assert stats.rows == 1_200
    assert Counter(each["n"] for each in stored(server)) == Counter(range(1_200))


def test_a_task_that_runs_again_publishes_nothing_twice(server: ThreadedServer) -> None:
    first = publish_partition(rows(300), config(server), namespace="nightly")
    again = publish_partition(reversed(rows(300)), config(server), namespace="nightly")
    assert (first.rows, first.duplicates) == (300, 0)
    assert (again.rows, again.duplicates) == (300, 300)
    assert len(stored(server)) == 300


def test_equal_rows_of_two_calls_are_published_twice_unless_they_share_a_namespace(
    server: ThreadedServer,
) -> None:
    settings = config(server)
    for _ in range(2):
        publish_partition(rows(1), settings)
    assert len(stored(server)) == 2
    for _ in range(2):
        publish_partition(rows(1), settings, namespace="nightly")
    assert len(stored(server)) == 3


def test_tokens_that_have_ended_are_replaced_and_nothing_is_lost(server: ThreadedServer) -> None:
    tokens[:] = [lambda: server.token("service", kind="service", ttl=-5), server.service_token]
    stats = publish_partition(rows(300), config(server, batch_size=20))
    assert stats.rows == 300
    assert stats.retries > 0
    assert Counter(each["n"] for each in stored(server)) == Counter(range(300))


def test_an_id_that_was_used_for_something_else_fails_the_task(server: ThreadedServer) -> None:
    one = {"topic": "jobs.rows", "id": "i1"}
    publish_partition([{**one, "data": "1"}], config(server))
    with pytest.raises(Conflict) as caught:
        publish_partition([{**one, "data": "2"}], config(server))
    assert (caught.value.topic, caught.value.field) == ("jobs.rows", "id")
    assert str(caught.value).startswith("Column `id`: ")
    assert "'i1'" in str(caught.value)
    assert stored(server) == [1]


def test_a_number_that_no_json_parser_takes_spoils_its_row_alone(server: ThreadedServer) -> None:
    some = [*rows(40), {"topic": "jobs.rows", "data": "1e999"}]
    stats = publish_partition(some, config(server, on_error="deadletter:jobs.dead"))
    assert (stats.rows, stats.dead_letters) == (40, 1)
    assert Counter(each["n"] for each in stored(server)) == Counter(range(40))
    (letter,) = stored(server, "jobs.dead")
    assert letter["row"]["data"] == "1e999"
    assert (letter["error"]["code"], letter["error"]["field"]) == ("invalid_payload", "data")


@pytest.mark.parametrize("number", ["1e999", "-1E400", "1" * 400])
def test_a_number_beyond_those_of_the_server_is_reported_as_wrong_data_of_its_row(
    server: ThreadedServer, number: str
) -> None:
    row = {"topic": "jobs.rows", "data": f'{{"a":{number}}}'}
    with pytest.raises(InvalidPayload) as caught:
        publish_partition([*rows(2), row], config(server))
    assert (caught.value.topic, caught.value.field) == ("jobs.rows", "data")
    assert caught.value.message == (
        "Column `data`: not valid JSON: number is infinity when parsed as double"
        " (topic 'jobs.rows')."
    )
    assert caught.value.remedy == "Write numbers beyond 1.8e308 as texts, or leave them out."


@pytest.mark.parametrize("most", [1 << 20, 1024], ids=["one request", "several requests"])
def test_dead_letters_keep_the_order_of_their_rows(server: ThreadedServer, most: int) -> None:
    some = [{"topic": "jobs.*", "data": str(n)} for n in range(20)]
    settings = config(server, on_error="deadletter:jobs.dead", max_batch_bytes=most)
    assert publish_partition(some, settings).dead_letters == 20
    letters = stored(server, "jobs.dead")
    assert [letter["row"]["data"] for letter in letters] == [str(n) for n in range(20)]


def test_the_dead_letter_of_a_row_that_only_the_config_allows_fits(server: ThreadedServer) -> None:
    row = {"topic": "jobs.rows", "data": json.dumps("\N{PILE OF POO}" * 200_000)}
    settings = config(server, on_error="deadletter:jobs.dead", max_message_bytes=4 << 20)
    assert publish_partition([row], settings).dead_letters == 1
    (letter,) = stored(server, "jobs.dead")
    assert letter["error"]["code"] == "payload_too_large"
    assert letter["truncated"] is True


def test_a_rejected_dead_letter_is_named_as_such(server: ThreadedServer) -> None:
    tokens[:] = [lambda: server.token("mallory")]
    with pytest.raises(PermissionDenied) as caught:
        publish_partition(
            [{"topic": "jobs.*", "data": "1"}], config(server, on_error="deadletter:jobs.dead")
        )
    assert (caught.value.topic, caught.value.field) == ("jobs.dead", "on_error")
    assert "the dead letter of a row was rejected" in str(caught.value)


@pytest.mark.parametrize("kind", ["presence.join", "presence.update"])
def test_the_error_of_a_type_that_the_server_reserves_names_the_type(
    server: ThreadedServer, kind: str
) -> None:
    tokens[:] = [server.admin_token]
    for row, settings in (({"type": kind}, config(server)), ({}, config(server, type=kind))):
        with pytest.raises(PubSubError) as caught:
            publish_partition([{"topic": "jobs.rows", "data": "{}", **row}], settings)
        assert caught.value.field == "type"
        assert str(caught.value).startswith("Column `type`: presence ")


def test_the_error_of_a_denied_publish_names_the_topic(server: ThreadedServer) -> None:
    tokens[:] = [lambda: server.token("mallory")]
    with pytest.raises(PermissionDenied) as caught:
        publish_partition(rows(3), config(server))
    assert (caught.value.topic, caught.value.field) == ("jobs.rows", "topic")
    assert "jobs.rows" in str(caught.value)
