"""Calls to Redis without a Redis: which connection they use, and what becomes of their errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.backplanes.redis.errors import RefusedError
from pubsub_server.backplanes.redis.link import REDIRECTIONS, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Connection:
    """Replaces a connection: answers each command with the next answer, or raises it."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.commands: list[Sequence[Any]] = []
        self.is_open = True

    async def open(self) -> None:
        self._next(["open"])

    async def execute_command(self, *words: Any) -> Any:
        return self._next(words)

    async def execute_commands(self, calls: Sequence[Any]) -> Any:
        return self._next(calls)

    def send(self, words: Sequence[Any], done: Callable[[Any], None]) -> None:
        done(self._next(words))

    def _next(self, words: Sequence[Any]) -> Any:
        self.commands.append(words)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Servers:
    """Replaces the servers: one, which is known; `found` tells whether another one has the key."""

    def __init__(self, *, found: bool = False) -> None:
        self.readers, self.writer, self.heart = Connection(), Connection(), Connection()
        self.is_known = True
        self.found = found
        self.failures: list[Exception] = []

    async def of(self, key: str) -> Servers:
        return self

    def known(self, key: str) -> Servers | None:
        return self if self.is_known else None

    async def failed(self, server: Servers, error: Exception) -> bool:
        self.failures.append(error)
        return self.found


def linked(servers: Servers, *, cluster: bool = False) -> Link:
    link = Link("redis://127.0.0.1:1", cluster=cluster, durable=False)
    replaced: Any = servers
    link._servers = replaced
    return link


async def test_a_call_that_fails_is_repeated_a_few_times_while_another_server_has_its_key() -> None:
    servers = Servers(found=True)
    servers.readers.answers = [RedisConnectionError(str(n)) for n in range(REDIRECTIONS + 1)]
    with pytest.raises(RedisConnectionError, match=str(REDIRECTIONS - 1)):
        await linked(servers).member("key", "client")
    assert len(servers.failures) == len(servers.readers.commands) == REDIRECTIONS
    servers.readers.answers = [RedisConnectionError(), b"found"]
    assert await linked(servers).member("key", "client") == b"found"


async def test_a_call_that_fails_is_not_repeated_if_no_other_server_has_its_key() -> None:
    servers = Servers()
    servers.readers.answers = [RedisConnectionError(), b"never"]
    with pytest.raises(RedisConnectionError):
        await linked(servers).member("key", "client")
    assert len(servers.failures) == 1


async def test_a_connection_that_breaks_below_redis_is_a_failed_call() -> None:
    servers = Servers()
    servers.readers.answers = [TimeoutError(), BrokenPipeError("gone")]
    link = linked(servers)
    with pytest.raises(RedisTimeoutError):
        await link.member("key", "client")
    with pytest.raises(RedisConnectionError, match="BrokenPipeError: gone"):
        await link.member("key", "client")
    assert len(servers.failures) == 2


async def test_a_refusal_is_explained_and_any_other_answer_of_redis_stays_as_it_is() -> None:
    servers = Servers()
    servers.readers.answers = [NoPermissionError("no hget"), ResponseError("wrong type")]
    link = linked(servers)
    with pytest.raises(RefusedError, match=r"lacks a permission \(no hget\).*ACL LOG"):
        await link.member("key", "client")
    with pytest.raises(ResponseError, match="wrong type"):
        await link.member("key", "client")
    assert servers.failures == []


async def test_only_a_missing_permission_is_logged_by_the_link_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers()
    forbidden = NoPermissionError("no hget")
    servers.readers.answers = [ResponseError("MISCONF"), forbidden, forbidden]
    link = linked(servers)
    for _ in range(3):
        with pytest.raises(RefusedError):
            await link.member("key", "client")
    assert len(caplog.records) == 1
    assert "lacks a permission (no hget)" in caplog.text


async def test_a_script_that_redis_does_not_know_is_sent_again_with_its_text() -> None:
    servers = Servers()
    servers.readers.answers = [NoScriptError(), [b"answer"]]
    assert await linked(servers).heads("base", ["topic"]) == [b"answer"]
    by_digest, by_text = servers.readers.commands
    assert by_digest[0] == "EVALSHA"
    assert by_text[0] == "EVAL"
    assert by_digest[2:] == by_text[2:] == (1, "base", "topic")


async def test_publishes_heartbeats_and_reads_use_different_connections() -> None:
    servers = Servers()
    connections = servers.writer, servers.heart, servers.readers
    for connection in connections:
        connection.answers = [[b"answer"]]
    link = linked(servers)
    await link.publish(["base"], [])
    await link.heartbeat(["nodes"], [])
    await link.read("base", [])
    assert [len(connection.commands) for connection in connections] == [1, 1, 1]


async def test_there_is_a_connection_to_publish_on_if_the_server_is_known_and_it_is_open() -> None:
    servers = Servers()
    link, writer = linked(servers), cast("Any", servers.writer)
    assert link.open_writer("base") is writer
    servers.writer.is_open = False
    assert link.open_writer("base") is None
    servers.writer.is_open, servers.is_known = True, False
    assert link.open_writer("base") is None


async def test_a_publish_on_an_open_connection_counts_as_a_failure_or_as_a_round_trip() -> None:
    link = linked(Servers())
    taken: list[Any] = []
    answers = [b"answer", RedisConnectionError()]

    def send(words: Sequence[Any], done: Callable[[Any], None]) -> None:
        done(answers.pop(0))

    writer: Any = SimpleNamespace(send=send)
    for failures, round_trips in ((0, 1), (1, 1)):
        assert link.send_publish(writer, ["base"], [], taken.append)
        assert link.failures == failures
        assert link.round_trips["publish"].count == round_trips
    assert taken[0] == b"answer"
    assert isinstance(taken[1], RedisConnectionError)


async def test_a_publish_that_cannot_be_sent_is_not_answered() -> None:
    taken: list[Any] = []
    writer: Any = Connection(RedisConnectionError())
    assert not linked(Servers()).send_publish(writer, ["base"], [], taken.append)
    assert taken == []


async def test_a_failed_publish_is_reported_to_its_server_unless_that_is_unknown() -> None:
    servers = Servers()
    link, error = linked(servers), RedisConnectionError()
    await link.publish_failed("base", error)
    servers.is_known = False
    await link.publish_failed("base", error)
    assert servers.failures == [error]


async def test_calls_without_an_answer_are_counted() -> None:
    servers = Servers()
    servers.readers.answers = [RedisConnectionError()]
    link = linked(servers)
    with pytest.raises(RedisConnectionError):
        await link.heads("base", [])
    assert (link.failures, link.round_trips["heads"].count) == (1, 0)
    servers.readers.answers = [[]]
    await link.heads("base", [])
    assert (link.failures, link.round_trips["heads"].count) == (1, 1)
    servers.writer.answers = [None, RedisConnectionError()]
    await link.dial("base")
    with pytest.raises(RedisConnectionError):
        await link.dial("base")
    assert link.failures == 2


async def test_the_time_of_a_name_is_only_set_if_the_name_is_in_the_index() -> None:
    servers = Servers()
    servers.readers.answers = [0, 1]
    link = linked(servers)
    await link.update_name("index", "name", 5)
    await link.add_name("index", "name", 5)
    assert servers.readers.commands == [
        ("ZADD", "index", "XX", 5, "name"),
        ("ZADD", "index", 5, "name"),
    ]


async def test_values_that_redis_does_not_have_are_told_from_those_it_has() -> None:
    servers = Servers()
    servers.readers.answers = [None, b"former", None, b"former", 0, 1]
    link = linked(servers)
    assert [await link.set_default("key", "new") for _ in range(2)] == ["new", "former"]
    assert [await link.exchange("key", "new") for _ in range(2)] == [None, "former"]
    assert [await link.remove_name("index", "name") for _ in range(2)] == [False, True]


@pytest.mark.parametrize(("cluster", "calls"), [(False, 1), (True, 2)])
async def test_several_indices_are_one_call_except_in_a_cluster(cluster: bool, calls: int) -> None:
    servers = Servers()
    answers: list[Any] = [[b"a"], [b"b"]]
    servers.readers.answers = list(answers) if cluster else [answers]
    found = await linked(servers, cluster=cluster).topics_of(["one", "two"], since=1)
    assert found == answers
    assert len(servers.readers.commands) == calls


@pytest.mark.parametrize(
    ("stats", "memory", "policy"),
    [
        ("0", "maxmemory:9\r\nmaxmemory_policy:allkeys-lru", ""),
        ("5", "maxmemory:9\r\nmaxmemory_policy:allkeys-lru", "allkeys-lru"),
        ("5", "maxmemory:9\r\nmaxmemory_policy:volatile-ttl", ""),
        ("5", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru", ""),
    ],
)
async def test_a_policy_is_named_if_redis_has_evicted_keys_and_may_evict_any(
    stats: str, memory: str, policy: str
) -> None:
    servers = Servers()
    servers.readers.answers = [f"evicted_keys:{stats}".encode(), memory.encode()]
    # Both keys are on one server.
    assert await linked(servers).eviction_policies(["one", "two"], evicted=True) == policy


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("redis_mode:sentinel\r\nredis_version:7.2.0", "Sentinel"),
        ("redis_mode:standalone\r\nredis_version:6.2.0", "too old"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused(server: str, problem: str) -> None:
    servers = Servers()
    servers.readers.answers = [server.encode()]
    with pytest.raises(RefusedError, match=problem):
        await linked(servers).check("key")
