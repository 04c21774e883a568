"""A running Redis that rejects writes: too few replicas, a full disk, or missing permissions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from pubsub_server.access.setup import StartError
from pubsub_server.backplanes.redis import link
from pubsub_server.backplanes.redis import url as redis_url
from pubsub_server.backplanes.redis.errors import RefusedError
from pubsub_server.testing import running_server
from tests.cluster.fleet import nodes, peer
from tests.cluster.store import LOADS, fill, program, running
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

BOUND: Final = 60
COMMANDS: Final = "+@read +@write +@scripting +@connection +@pubsub +info +time"


async def publish(node: RunningServer) -> httpx.Response:
    async with httpx.AsyncClient(timeout=BOUND) as http:
        return await http.post(
            f"{node.http}/v1/topics/demo.x/messages",
            headers={"Authorization": f"Bearer {node.service_token()}"},
            json={"data": 1},
        )


async def lacks_replicas(store: Store) -> str:
    await store.command("CONFIG", "SET", "min-replicas-to-write", 1)
    return "lower its min-replicas-to-write"


async def lacks_its_disk(store: Store) -> str:
    (store.folder / "dump.rdb").mkdir()
    await store.command("CONFIG", "SET", "save", "3600 1")
    await store.command("BGSAVE")

    async def failed() -> bool:
        return b"rdb_last_bgsave_status:err" in await store.command("INFO", "persistence")

    await until(failed, True)
    return "free space on its disk"


async def lacks_memory(store: Store) -> str:
    await store.command("CONFIG", "SET", "maxmemory", 1)
    return "raise its maxmemory"


async def lacks_its_primary(store: Store) -> str:
    await store.command("REPLICAOF", "127.0.0.1", "1")
    return "publishes are rejected: Redis is a replica, which accepts no writes; use its primary"


async def recovers(store: Store) -> None:
    for name in ("min-replicas-to-write", "maxmemory"):
        await store.command("CONFIG", "SET", name, 0)


async def allow(store: Store, *rights: str) -> str:
    await store.command("ACL", "SETUSER", "service", "reset", "on", ">hush", *rights)
    return store.url.replace("//", "//service:hush@")


@pytest.mark.parametrize("spoil", [lacks_replicas, lacks_its_disk, lacks_its_primary])
async def test_publishes_that_redis_refuses_for_now_may_be_tried_again(
    store: Store, caplog: pytest.LogCaptureFixture, spoil: Any
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        remedy = await spoil(store)
        answer = await publish(node)
    reported = [each for each in caplog.records if "publishes are rejected" in each.getMessage()]
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert [each.levelno for each in reported] == [logging.ERROR]
    assert remedy in reported[0].getMessage()
    assert [each for each in caplog.records if each.exc_info] == []


async def test_a_publish_that_redis_rejects_is_sent_when_redis_recovers(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        backplane: Any = node.hub.core.backplane
        failures = backplane._link.failures
        await lacks_replicas(store)
        waiting = asyncio.create_task(publish(node))
        await until(lambda: backplane._link.failures > failures, True)
        await store.command("CONFIG", "SET", "min-replicas-to-write", 0)
        assert (await waiting).status_code == 201


@pytest.mark.parametrize("spoil", [lacks_replicas, lacks_memory])
async def test_a_message_without_history_that_redis_rejects_at_first_is_delivered_once(
    store: Store, spoil: Any
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, redis_durable=True) as node,
        peer(node, node.service_token()) as socket,
        peer(node, node.token("ann")) as reader,
    ):
        backplane: Any = node.hub.core.backplane

        async def send(data: int) -> None:
            await socket.send(
                {"type": "publish", "topic": "demo.x", "data": data, "ttl": 0, "ref": str(data)}
            )

        await reader.subscribe("demo.x", presence=False)
        await send(0)
        await socket.until("published")
        assert (await reader.message())["data"] == 0
        failures = backplane._link.failures
        await spoil(store)
        await send(1)
        await until(lambda: backplane._link.failures >= failures + 3)
        await recovers(store)
        await socket.until("published")
        await send(2)
        await socket.until("published")
        assert [(await reader.message())["data"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        (("~hanzo-pubsub*", *COMMANDS.split()), "channel"),
        (("~other*", "&hanzo-pubsub*", *COMMANDS.split()), "key"),
        (("~*", "&*", "+@read", "+@write", "+@connection"), "info"),
        (
            ("~hanzo-pubsub*", "&hanzo-pubsub*", *COMMANDS.replace("+@scripting ", "").split()),
            "eval",
        ),
        (
            ("~hanzo-pubsub*", "&hanzo-pubsub*", *COMMANDS.replace("+@read ", "").split()),
            "get",
        ),
    ],
)
async def test_missing_permissions_of_the_redis_user_are_reported_at_the_start(
    store: Store, rights: tuple[str, ...], expected: str
) -> None:
    url = await allow(store, *rights)
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match="redis_url lacks a permission") as caught:
            async with running_server(redis_url=url):
                pass
    assert expected in str(caught.value)
    assert "https://pubsub.hanzo.ai/docs/operations/#redis" in str(caught.value)


async def test_the_rights_that_the_manual_names_are_enough(store: Store) -> None:
    url = await allow(store, "~hanzo-pubsub*", "&hanzo-pubsub*", *COMMANDS.split())
    async with asyncio.timeout(BOUND), running_server(redis_url=url) as node:
        assert (await publish(node)).status_code == 201


async def test_a_busy_redis_is_recognized_by_a_read_of_several_shards(store: Store) -> None:
    await store.command("CONFIG", "SET", "busy-reply-threshold", 20)
    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,):
        backplane: Any = node.hub.core.backplane
        layout = backplane._layout
        running = asyncio.create_task(store.command("EVAL", "while true do end", 0))
        await until(store.busy)
        with pytest.raises(RefusedError, match="busy with a script"):
            await backplane._link.names_of(layout.owners)
        await store.command("SCRIPT", "KILL")
        with pytest.raises(ResponseError):
            await running


async def test_a_node_that_loses_the_permission_to_listen_reports_it_and_recovers(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    rights = ("~hanzo-pubsub*", *COMMANDS.split())
    url = await allow(store, "&hanzo-pubsub*", *rights)
    async with asyncio.timeout(BOUND), running_server(redis_url=url) as node:
        backplane: Any = node.hub.core.backplane
        await until(lambda: backplane._feed.up)
        await allow(store, *rights)
        await until(lambda: "cannot receive messages" in caplog.text)
        await allow(store, "&hanzo-pubsub*", *rights)
        await until(lambda: backplane._feed.up)
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("lost", ["+@read", "+@write"])
async def test_a_permission_that_the_redis_user_loses_is_reported_with_each_publish(
    store: Store, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    rights = ("~hanzo-pubsub*", "&hanzo-pubsub*", *COMMANDS.split())
    url = await allow(store, *rights)
    async with asyncio.timeout(BOUND), running_server(redis_url=url) as node:
        await allow(store, *(each for each in rights if each != lost))
        answer = await publish(node)
        await allow(store, *rights)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert (await publish(node)).status_code == 201
    assert "redis_url lacks a permission" in caplog.text
    assert "https://pubsub.hanzo.ai/docs/operations/#redis" in caplog.text
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("/first", "number of a database"),
        ("/9999", "no database with this number"),
        ("?foo=bar", "no option 'foo' .* remove it"),
        ("?socket_timeout=soon", "option 'socket_timeout' has an invalid value; correct it"),
        ("?max_connections=-1", "an option of the URL has an invalid value; correct it"),
        # redis-py expects objects.
        ("?retry=3", "an option of the URL has an invalid value; correct it"),
        ("?parser_class=hiredis", "an option of the URL has an invalid value; correct it"),
    ],
)
@pytest.mark.parametrize("cluster", [False, True])
async def test_what_is_wrong_in_the_url_of_redis_is_named(
    store: Store, behind: str, expected: str, cluster: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if cluster and behind == "/9999":
        expected = "has no socket file, and only database 0; write redis://HOST:PORT"
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match=f"redis_url: .*{expected}"):
            async with running_server(redis_url=store.url + behind, redis_cluster=cluster):
                pass
    assert [each for each in caplog.records if each.exc_info] == []


async def test_an_option_for_which_python_suggests_another_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reject(**_: object) -> None:
        raise TypeError("f() got an unexpected keyword argument 'user'. Did you mean 'username'?")

    monkeypatch.setattr(redis_url, "BlockingConnectionPool", reject)
    with pytest.raises(StartError, match="no option 'user' of a connection to Redis; correct"):
        async with running_server(redis_url="redis://127.0.0.1:1?user=x"):
            pass


async def test_a_wrong_value_for_tls_in_the_url_of_redis_is_named() -> None:
    url = "rediss://127.0.0.1:1?ssl_cert_reqs=maybe"
    with pytest.raises(StartError, match=r"option of the URL is invalid \(.*maybe\); correct"):
        async with running_server(redis_url=url):
            pass


async def test_a_full_redis_is_named_at_the_start(store: Store) -> None:
    await lacks_memory(store)
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match=r"Redis is full \(maxmemory\); raise its maxmemory"):
            async with running_server(redis_url=store.url):
                pass


async def test_a_redis_without_room_for_a_connection_is_named_at_the_start(store: Store) -> None:
    async with asyncio.timeout(BOUND), store.client() as other:
        await other.ping()
        await store.command("CONFIG", "SET", "maxclients", 1)
        with pytest.raises(
            StartError, match=r"^redis_url: .*\(maxclients\); raise its maxclients$"
        ):
            async with running_server(redis_url=store.url):
                pass


async def test_a_sentinel_is_named_at_the_start(tmp_path: Path) -> None:
    port, settings = free_port(), tmp_path / "sentinel.conf"
    lines = (f"port {port}", "bind 127.0.0.1", "sentinel monitor main 127.0.0.1 1 1", "")
    settings.write_text("\n".join(lines), encoding="utf-8")
    sentinel = await asyncio.create_subprocess_exec(
        program("redis"), settings, "--sentinel", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert sentinel.stdout is not None
        async with asyncio.timeout(BOUND):
            while b"Sentinel ID" not in await sentinel.stdout.readline():
                pass
            with pytest.raises(StartError, match=r"is a Sentinel, .*: name the primary, or an"):
                async with running_server(redis_url=f"redis://127.0.0.1:{port}"):
                    pass
    finally:
        sentinel.kill()
        await sentinel.communicate()


async def test_a_node_of_a_cluster_is_named_at_the_start(tmp_path: Path) -> None:
    # By default, the second port is one that the kernel also gives to outgoing connections.
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    async with (
        asyncio.timeout(BOUND),
        running("redis", tmp_path / "store", *cluster) as store,
    ):
        with pytest.raises(StartError, match="is a node of a Redis Cluster; set redis_cluster"):
            async with running_server(redis_url=store.url):
                pass
        with pytest.raises(StartError, match=r"its slots\); check `redis-cli cluster info`"):
            async with running_server(redis_url=store.url, redis_cluster=True):
                pass


async def test_a_replica_that_has_lost_its_primary_is_named_at_the_start(store: Store) -> None:
    await store.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    await store.command("REPLICAOF", "127.0.0.1", "1")
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match="is a replica that has lost its primary; use its"):
            async with running_server(redis_url=store.url):
                pass


async def test_a_redis_that_loads_its_data_is_named_at_the_start(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), running("redis", tmp_path / "store", *LOADS) as store:
        await fill(store)
        await store.command("SAVE")
        await store.end()
        starting = asyncio.create_task(store.start())
        await until(lambda: loading(store))
        with pytest.raises(StartError, match="still loads its data; start again when"):
            async with running_server(redis_url=store.url):
                pass
        await starting


async def loading(store: Store) -> bool:
    """Whether it accepts connections, but is loading its data."""
    try:
        return b"loading:1" in await store.command("INFO", "persistence")
    except RedisConnectionError:
        return False


async def test_a_password_that_is_missing_is_asked_for(store: Store) -> None:
    await store.command("CONFIG", "SET", "requirepass", "hush")
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match="redis://:PASSWORD@HOST"):
            async with running_server(redis_url=store.url):
                pass


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("ACL", "SETUSER", "service", "resetpass", ">other"),
            "Redis refuses the user or password",
        ),
        (("ACL", "SETUSER", "service", "off"), "Redis refuses the user or password"),
        (("CONFIG", "SET", "requirepass", "hush"), "Redis requires a password: redis://"),
    ],
)
async def test_a_password_that_changes_while_a_node_runs_is_named_with_its_remedy(
    store: Store, caplog: pytest.LogCaptureFixture, change: tuple[str, ...], problem: str
) -> None:
    url = store.url if "requirepass" in change else await allow(store, "~*", "&*", "+@all")
    async with asyncio.timeout(BOUND), running_server(redis_url=url) as node:
        assert (await publish(node)).status_code == 201
        async with store.client() as redis:
            await redis.execute_command(*change)
            for kind in ("normal", "pubsub"):
                await redis.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        answer = await publish(node)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    (line,) = [text for text in caplog.messages if "publishes are rejected" in text]
    assert line.startswith(f"Redis rejects this node, and publishes are rejected ({problem}")
    assert line.endswith("; correct redis_url, and restart this node)")
    assert "hush" not in caplog.text


async def test_a_server_that_is_not_redis_is_recognized(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server() as other:
        with pytest.raises(StartError, match="not a Redis server"):
            async with running_server(redis_url=other.http.replace("http:", "redis:")):
                pass


async def test_what_a_node_runs_in_redis_is_read_before_an_upgrade_may_replace_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        monkeypatch.setattr(link, "SCRIPTS", tmp_path)
        assert (await publish(node)).status_code == 201


@pytest.mark.parametrize(
    ("hello", "problem"),
    [
        (b"-ERR unknown command `HELLO`, with args beginning with: `3`, ", "is older than 6;"),
        (b"%1\r\n+proto\r\n:3", "6.2.14 is too old:"),
    ],
)
async def test_a_redis_of_an_old_version_is_named_at_the_start(hello: bytes, problem: str) -> None:
    version = b"redis_version:6.2.14\r\n"
    answers = {b"HELLO": hello, b"INFO": b"$%d\r\n%s" % (len(version), version)}

    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while header := await reader.readline():
            words = []
            for _ in range(int(header[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            writer.write(answers.get(words[0], b"+OK") + b"\r\n")
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with asyncio.timeout(BOUND), await asyncio.start_server(answer, "127.0.0.1", 0) as old:
        port = old.sockets[0].getsockname()[1]
        with pytest.raises(StartError, match=f"{problem} upgrade it to 7.0 or later$"):
            async with running_server(redis_url=f"redis://127.0.0.1:{port}"):
                pass
        await closed.wait()
