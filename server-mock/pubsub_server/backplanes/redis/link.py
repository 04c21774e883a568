"""All calls to Redis except listening (`feed`): each goes to the server of its key."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from redis.exceptions import NoScriptError, ResponseError

from pubsub_server.backplanes.redis.errors import ForbiddenError, RefusedError, refusal
from pubsub_server.backplanes.redis.failure_log import FailureLog
from pubsub_server.backplanes.redis.servers import (
    LINK_ERRORS,
    One,
    RedisError,
    Server,
    Slots,
    broken,
)
from pubsub_server.instruments import Distribution
from pubsub_server.tasks import run_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pubsub_server.backplanes.redis.pool import Pool
    from pubsub_server.backplanes.redis.wire import Done, Wire

SCRIPTS: Final = Path(__file__).with_name("scripts")
REDIRECTIONS: Final = 3
SAFE_POLICIES: Final = {"noeviction", "volatile-ttl"}
"""Eviction policies that cannot remove just any key."""

_INCLUDE: Final = re.compile(r"^ *-- include (\S+)$", re.MULTILINE)
_LOG: Final = logging.getLogger("pubsub_server.backplanes.redis")

_T = TypeVar("_T")

Argument = str | bytes | int


class _Script:
    """A script; called by digest, sent again if Redis does not know it.

    Args:
        path: Its file. A line `-- include NAME` stands for a file of `parts`.
        durable: See `Link`.

    Attributes:
        digest: SHA-1 of its text.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._source = f"local DURABLE = {str(durable).lower()}\n{_text(path)}"
        self.digest = sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def call(
        self, client: Pool | Wire, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> list[Any]:
        """Run the script."""
        run = client.execute_command
        try:
            found = await run("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            found = await run("EVAL", self._source, len(keys), *keys, *arguments)
        return cast("list[Any]", found)


def _text(path: Path) -> str:
    """The text of a script with its parts."""
    text = path.read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: _text(SCRIPTS / "parts" / found[1]), text)


def _topics(index: str, since: int) -> tuple[Argument, ...]:
    return ("ZRANGE", index, since, "+inf", "BYSCORE")


class Link:
    """Calls Redis, except for listening.

    Args:
        url: `redis://`, `rediss://` or `unix://`; with ``cluster`` any node of it.
        cluster: Whether it is a Redis Cluster.
        durable: Whether a restarted server still has all writes that it had acknowledged.

    Attributes:
        cluster: As given.
        round_trips: Durations of answered calls in seconds: `publish`, `read`, `heads`.
        failures: Number of unanswered calls.

    Raises:
        ValueError: The URL is not valid.
    """

    def __init__(self, url: str, *, cluster: bool, durable: bool) -> None:
        self.cluster = cluster
        self.round_trips = {name: Distribution() for name in ("publish", "read", "heads")}
        self.failures = 0
        # Read all scripts now: later, file descriptors may be exhausted or an upgrade may have
        # replaced the files.
        self._scripts = {
            path.name: _Script(path, durable=durable) for path in SCRIPTS.glob("*.lua")
        }
        self._servers: One | Slots = Slots(url) if cluster else One(url)
        # Callers hide a failure if they can work without the call, or try again.
        self._forbidden = FailureLog(_LOG, logging.ERROR)

    async def check(self, key: str) -> str:
        """The version of the server with this key.

        Raises:
            RedisError: It cannot be reached, refuses the credentials, is older than 7, or is a
                Sentinel.
        """
        info = await self._info(key, "server")
        if info.get("redis_mode") == "sentinel":
            raise RefusedError(
                "this server is a Sentinel, which stores no messages",
                "name the primary, or an address that follows it:"
                " https://pubsub.hanzo.ai/docs/operations/#redis",
            )
        version = info.get("redis_version", "0")
        if int(version.split(".")[0]) < 7:
            raise RefusedError(f"Redis {version} is too old", "upgrade it to 7.0 or later")
        return info.get("valkey_version") or version

    async def eviction_policies(self, keys: Sequence[str], *, evicted: bool = False) -> str:
        """The policies that may remove any key, of the servers with these keys that answer.

        Args:
            keys: One for each server, or more.
            evicted: Only of servers that have evicted keys.

        Returns:
            Their names, in words for the log; empty if there are none.
        """
        servers = await self._one_key_each(keys)
        found = await run_all(self._eviction_policy(key, evicted) for key in servers)
        return ", ".join(sorted(set(filter(None, found))))

    async def _eviction_policy(self, key: str, evicted: bool) -> str:
        with suppress(*LINK_ERRORS):
            if evicted and (await self._info(key, "stats")).get("evicted_keys", "0") == "0":
                return ""
            memory = await self._info(key, "memory")
            policy = memory.get("maxmemory_policy", "")
            if memory.get("maxmemory", "0") != "0" and policy not in SAFE_POLICIES:
                return policy
        return ""

    async def in_memory_only(self, keys: Sequence[str]) -> bool:
        """Whether a server with one of these keys has no append-only file; False without answer."""
        servers = await self._one_key_each(keys)
        return any(await run_all(self._without_file(key) for key in servers))

    async def _without_file(self, key: str) -> bool:
        with suppress(*LINK_ERRORS):
            return (await self._info(key, "persistence")).get("aof_enabled") == "0"
        return False

    async def _one_key_each(self, keys: Sequence[str]) -> Collection[str]:
        """One of the keys for each server that has some and answers."""
        servers: dict[Server, str] = {}
        for key in keys:
            with suppress(*LINK_ERRORS):
                servers[await self._servers.of(key)] = key
        return servers.values()

    def open_writer(self, key: str) -> Wire | None:
        """The connection that publishes to this key, if it is open."""
        server = self._servers.known(key)
        return server.writer if server is not None and server.writer.is_open else None

    def send_publish(
        self, writer: Wire, keys: Sequence[str], arguments: Sequence[Argument], done: Done
    ) -> bool:
        """Like `publish`, but immediate and without a task.

        Args:
            writer: See `open_writer`.
            keys: See `publish.lua`.
            arguments: See `publish.lua`.
            done: Called with the answer or the error; the publish may have been performed even
                after an error.

        Returns:
            Whether it was sent. If not, call `publish`, which dials.
        """
        began = perf_counter()

        def answered(answer: Any) -> None:
            if isinstance(answer, Exception):
                self.failures += 1
            else:
                self.round_trips["publish"].observe(perf_counter() - began)
            done(answer)

        digest = self._scripts["publish.lua"].digest
        try:
            writer.send(("EVALSHA", digest, len(keys), *keys, *arguments), answered)
        except RedisError:
            return False
        return True

    async def publish_failed(self, key: str, error: Exception) -> None:
        """Find the server that has this key now, after `send_publish` failed with this error."""
        server = self._servers.known(key)
        if server is not None:
            await self._servers.failed(server, error)

    async def dial(self, key: str) -> None:
        """Open the connection that publishes to this key, unless it is open."""
        try:
            await self._at(key, lambda writer: writer.open(), writing=True)
        except RedisError:
            self.failures += 1
            raise

    async def publish(self, keys: Sequence[str], arguments: Sequence[Argument]) -> list[bytes]:
        """See `publish.lua`."""
        return await self._timed("publish", keys, arguments, writing=True)

    async def read(self, base: str, arguments: Sequence[Argument]) -> list[Any]:
        """See `read.lua`."""
        return await self._timed("read", [base], arguments)

    async def heads(self, base: str, arguments: Sequence[Argument]) -> list[bytes]:
        """See `heads.lua`."""
        return await self._timed("heads", [base], arguments)

    async def heartbeat(self, keys: Sequence[str], arguments: Sequence[Argument]) -> list[bytes]:
        """See `heartbeat.lua`. It waits for no other call."""
        script = self._scripts["heartbeat.lua"]
        return await self._on(keys[0], lambda server: script.call(server.heart, keys, arguments))

    async def call(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        writing: bool = False,
    ) -> list[Any]:
        """Run the script of this file, which documents its arguments and answer.

        Args:
            name: Name of the file.
            keys: All of one slot in a cluster.
            arguments: Arguments of the script.
            writing: Whether to use the connection for publishing.
        """
        script = self._scripts[name]
        return await self._at(
            keys[0], lambda client: script.call(client, keys, arguments), writing=writing
        )

    async def set_default(self, key: str, value: str) -> str:
        """Set a key unless it is set, and return its value."""
        found: bytes | None = await self._ask(key, "SET", key, value, "NX", "GET")
        return value if found is None else found.decode()

    async def check_permissions(self, key: str) -> None:
        """Check that the user may read, and use channels and scripts: each has its permission.

        Raises:
            RefusedError: The user may not.
        """
        await self._ask(key, "GET", key)
        await self._ask(key, "SPUBLISH", f"{key}:tried", "")
        await self._ask(key, "EVAL", "return 0", 1, key)

    async def publish_time(self, channel: str) -> None:
        """Publish the time of Redis to a channel, on the connection that messages use."""

        async def publish(writer: Wire) -> None:
            seconds, microseconds = await writer.execute_command("TIME")
            time = int(seconds) * 1_000_000 + int(microseconds)
            await writer.execute_command("SPUBLISH", channel, f"alive {time}")

        await self._at(channel, publish, writing=True)

    async def exchange(self, key: str, value: str) -> str | None:
        """Set a key, and return its former value, if any."""
        found: bytes | None = await self._ask(key, "SET", key, value, "GET")
        return None if found is None else found.decode()

    async def update_name(self, index: str, name: str, time: int) -> None:
        """Set the time of a name in an index, if it exists."""
        await self._ask(index, "ZADD", index, "XX", time, name)

    async def add_name(self, index: str, name: str, time: int) -> None:
        """Add a name to an index, with its time."""
        await self._ask(index, "ZADD", index, time, name)

    async def remove_name(self, index: str, name: str) -> bool:
        """Remove a name from an index; whether it existed."""
        removed: int = await self._ask(index, "ZREM", index, name)
        return removed > 0

    async def member(self, key: str, client_id: str) -> bytes | None:
        """One field of a hash."""
        found: bytes | None = await self._ask(key, "HGET", key, client_id)
        return found

    async def topics(self, index: str, *, since: int = 0) -> list[bytes]:
        """Topics of a shard whose newest message is not older than this, Unix ms."""
        found: list[bytes] = await self._ask(index, *_topics(index, since))
        return found

    async def topics_of(self, indices: Sequence[str], *, since: int) -> list[list[bytes]]:
        """Like `topics`, for several shards, if few are expected."""
        if self.cluster:
            return await run_all(self.topics(index, since=since) for index in indices)

        calls = [_topics(index, since) for index in indices]
        return await self._at(indices[0], lambda readers: readers.execute_commands(calls))

    async def names_of(self, indices: Sequence[str]) -> set[str]:
        """All names in several indices, if few are expected."""
        found = await self.topics_of(indices, since=0)
        return {name.decode() for names in found for name in names}

    async def delete(self, keys: Sequence[str]) -> None:
        """Drop keys of one shard."""
        await self._ask(keys[0], "DEL", *keys)

    async def time(self, key: str) -> int:
        """The clock of the server that has this key, Unix ms."""
        seconds, microseconds = await self._ask(key, "TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    # ------------------------------------------------------------ listening

    async def server(self, key: str) -> Server:
        """The server that has this key, to listen to."""
        return await self._servers.of(key)

    def still(self, key: str, server: Server) -> bool:
        """Whether this server has this key, as far as is known."""
        return self._servers.still(key, server)

    async def failed(self, server: Server, error: Exception) -> None:
        """Listening to this server failed."""
        await self._servers.failed(server, error)

    # ------------------------------------------------------------ inside

    async def close(self) -> None:
        """Close all connections."""
        await self._servers.close()

    async def _ask(self, key: str, *words: Argument) -> Any:
        return await self._at(key, lambda readers: readers.execute_command(*words))

    async def _info(self, key: str, section: str) -> dict[str, str]:
        text: bytes = await self._ask(key, "INFO", section)
        rows = (line.partition(":") for line in text.decode().splitlines())
        return {name: value for name, _, value in rows}

    async def _at(
        self, key: str, work: Callable[[Any], Awaitable[_T]], *, writing: bool = False
    ) -> _T:
        return await self._on(
            key, lambda server: work(server.writer if writing else server.readers)
        )

    async def _on(self, key: str, work: Callable[[Server], Awaitable[_T]]) -> _T:
        for left in reversed(range(REDIRECTIONS)):
            server = await self._servers.of(key)
            try:
                with broken():
                    return await work(server)
            except LINK_ERRORS as error:
                if not await self._servers.failed(server, error) or not left:
                    raise
            except ResponseError as error:
                refused = refusal(error)
                if isinstance(refused, ForbiddenError):
                    self._forbidden.note(f"Redis rejects calls of this node: {refused}")
                raise refused or error from None
        raise AssertionError("unreachable")

    async def _timed(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        writing: bool = False,
    ) -> list[Any]:
        began = perf_counter()
        try:
            answer = await self.call(f"{name}.lua", keys, arguments, writing=writing)
        except RedisError:
            self.failures += 1
            raise
        self.round_trips[name].observe(perf_counter() - began)
        return answer
