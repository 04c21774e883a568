"""The servers of the URL: one, or those of a Redis Cluster by their slots.

A redirection of a cluster is followed only when a slot has moved permanently. While a slot moves,
its keys are in two places, and no script can distinguish a topic without a log from one whose log
has moved already, so the caller has to wait.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError as RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from pubsub_server.backplanes.redis.errors import REPLICA, RefusedError, address_of
from pubsub_server.backplanes.redis.pool import Pool
from pubsub_server.backplanes.redis.wire import ANSWER_WITHIN, Wire, unused
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

logger = logging.getLogger(__name__)

LINK_ERRORS: Final = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    MasterDownError,
    AskError,
    ClusterDownError,
    ClusterError,
    RedisClusterException,
    TryAgainError,
    OutOfMemoryError,
    RefusedError,
)
"""Errors that are temporary or that an operator can fix; the call is repeated for a while."""

BROKEN: Final = (OSError, EOFError, RuntimeError)
"""Errors of a failed transport that redis-py does not convert. uvloop raises `RuntimeError` for a
write to a transport whose handler is closed.
"""

DIAL_ANEW: Final = (RedisConnectionError, ReadOnlyError)
READERS: Final = 8
LEARN_WITHIN: Final = 1.0
LEARN_AGAIN: Final = 0.1
SLOTS: Final = 16_384

Address = tuple[str, int]


@contextmanager
def broken() -> Generator[None]:
    """Convert the errors of a failed transport.

    Raises:
        RedisTimeoutError: Instead of `TimeoutError`.
        RedisConnectionError: Instead of the others of `BROKEN`.
    """
    try:
        yield
    except TimeoutError as error:
        raise RedisTimeoutError("no answer in time") from error
    except BROKEN as error:
        raise RedisConnectionError(f"{type(error).__name__}: {error}") from error


class Server:
    """Connections to one server.

    Args:
        options: Options of its connections.
        shared: Whether one connection publishes and listens, which saves system calls for messages
            that return to their node. The shards of a cluster move one by one, so each has its own
            listening connection there.

    Attributes:
        address: Its host and port, or its socket file.
        writer: For publishing; it keeps the order of the calls of all shards.
        heart: For heartbeats, which must not wait until a reader is free.
        readers: For everything else.
    """

    def __init__(self, options: dict[str, Any], *, shared: bool) -> None:
        # redis-py must not repeat calls: the caller knows which calls may be repeated, and for how
        # long.
        all_options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            # With these notifications redis-py uses connections that were closed while idle.
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
            **options,
            # With a timeout redis-py sends by `asyncio.wait_for`, which may swallow a cancellation.
            "socket_timeout": None,
            "socket_connect_timeout": ANSWER_WITHIN,
            "protocol": 3,
        }
        self.address = address_of(options)
        self._client = Redis.from_pool(BlockingConnectionPool(**all_options))
        self._shared = shared
        self.writer = self._wire()
        self.heart = Pool(self._wire, 1)
        self.readers = Pool(self._wire, READERS)

    def listen(self, pushed: Callable[[Sequence[Any]], None]) -> Wire:
        """The listening connection; end it with `stop_listening`.

        Args:
            pushed: See `Wire`.
        """
        wire = self.writer if self._shared else self._wire()
        wire.listen(pushed)
        return wire

    def stop_listening(self, wire: Wire) -> None:
        """Close a connection of `listen`. The next publish dials a shared connection again."""
        if wire is self.writer:
            wire.close()
        else:
            wire.hang_up()

    def drop(self, error: Exception) -> None:
        """Close the connections, so that the next calls dial again.

        This does not close the listening connection, which detects a loss itself: messages that are
        not stored would be missed.

        Args:
            error: `DIAL_ANEW`.
        """
        if isinstance(error, ReadOnlyError):
            self.writer.close(RedisConnectionError(REPLICA))
        self.heart.drop()
        self.readers.drop()

    def close(self) -> None:
        """Close all connections permanently."""
        self.writer.hang_up()
        self.heart.close()
        self.readers.close()

    def _wire(self) -> Wire:
        return Wire(self._client)


class One:
    """A single Redis server, not a cluster.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
    """

    def __init__(self, url: str) -> None:
        self._server = Server(dict(parse_url(url)), shared=True)

    async def of(self, key: str) -> Server:
        """The server that has this key."""
        return self._server

    def known(self, key: str) -> Server | None:
        """The server that has this key, if it is known without a call."""
        return self._server

    def still(self, key: str, server: Server) -> bool:
        """Whether this server has this key, by current knowledge."""
        return True

    async def failed(self, server: Server, error: Exception) -> bool:
        """A call failed; whether another server is to be asked instead."""
        if isinstance(error, DIAL_ANEW):
            server.drop(error)
        return False

    async def close(self) -> None:
        """Close all connections."""
        self._server.close()


class Slots:
    """A Redis Cluster: the servers of the slots, as the servers report them.

    Args:
        url: `redis://` or `rediss://` of any of its servers.

    Raises:
        ValueError: The URL cannot be used for a cluster.
    """

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = dict(parse_url(url))
        if "path" in options or options.get("db"):
            raise ValueError(
                "a Redis Cluster has no socket file, and only database 0; write redis://HOST:PORT"
            )
        self._options = options
        self._first: Address = (options.get("host", "localhost"), options.get("port", 6379))
        self._servers: dict[Address, Server] = {}
        self._owners: list[Address | None] = [None] * SLOTS
        self._known: list[Address] = []
        self._doubted: Address | None = None
        self._stale = True
        self._learnt = -LEARN_AGAIN
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._loop, logger, "map of the cluster")
        self._learning: asyncio.Task[None] | None = None
        self._over = False

    async def of(self, key: str) -> Server:
        """The server that has this key.

        Raises:
            RedisError: No server knows.
        """
        if self._over:
            raise unused()
        slot = key_slot(key.encode())
        if self._stale or self._owners[slot] is None:
            await self._learn()
        owner = self._owners[slot]
        if owner is None:
            # Without the number, the lanes of all slots log one line.
            raise ClusterDownError("no server of the cluster has some of its slots")
        return self._server(owner)

    def known(self, key: str) -> Server | None:
        """The server that has this key, if it is known without a call."""
        owner = None if self._stale else self._owners[key_slot(key.encode())]
        return None if owner is None else self._servers.get(owner)

    def still(self, key: str, server: Server) -> bool:
        """Whether this server has this key, by current knowledge."""
        owner = self._owners[key_slot(key.encode())]
        return owner is not None and self._servers.get(owner) is server

    async def failed(self, server: Server, error: Exception) -> bool:
        """A call failed; whether another server is to be asked instead."""
        asked = next((at for at, each in self._servers.items() if each is server), self._first)
        if isinstance(error, MovedError):
            given: Any = error
            self._owners[given.slot_id] = (given.host or asked[0], given.port)
            self._stale = True
            return True
        if not isinstance(error, (AskError, OutOfMemoryError)):
            self._doubted, self._stale = asked, True
        if isinstance(error, DIAL_ANEW):
            server.drop(error)
        return False

    async def close(self) -> None:
        """Close all connections."""
        self._over = True
        try:
            await self._tasks.stop()
        finally:
            for server in self._servers.values():
                server.close()

    # ------------------------------------------------------------ inside

    def _server(self, address: Address) -> Server:
        server = self._servers.get(address)
        if server is None:
            options = {**self._options, "host": address[0], "port": address[1]}
            server = self._servers[address] = Server(options, shared=False)
        return server

    async def _learn(self) -> None:
        if self._loop.time() - self._learnt < LEARN_AGAIN:
            return
        if self._learning is None or self._learning.done():
            self._learning = self._tasks.spawn(self._ask_around(), expected=(RedisError,))
        await asyncio.shield(self._learning)

    async def _ask_around(self) -> None:
        # Ask the doubted server last: its view may be outdated.
        asked = dict.fromkeys((*self._known, self._first))
        order = sorted(asked, key=lambda address: address == self._doubted)
        failure: Exception = ClusterDownError("no server of the cluster is known")
        # With no other server to ask, a slow one gets the time of any other call.
        within = LEARN_WITHIN if len(order) > 1 else ANSWER_WITHIN
        for address in order:
            try:
                async with asyncio.timeout(within):
                    readers = self._server(address).readers
                    found = await readers.execute_command("CLUSTER", "SLOTS")
            except (TimeoutError, RedisError, *BROKEN) as error:
                failure = error
                continue
            await self._store_slots(_rows(found, address[0]))
            return
        self._learnt = self._loop.time()
        if isinstance(failure, RedisError):
            raise failure
        if isinstance(failure, TimeoutError):
            raise RedisTimeoutError(f"no server of the cluster answers within {within:g} s")
        raise RedisConnectionError(f"no server of the cluster answers ({type(failure).__name__})")

    async def _store_slots(self, rows: Iterable[tuple[int, int, Sequence[Address]]]) -> None:
        owners: list[Address | None] = [None] * SLOTS
        known: dict[Address, None] = {}
        for start, end, addresses in rows:
            owners[start : end + 1] = [addresses[0]] * (end + 1 - start)
            known.update(dict.fromkeys(addresses))
        self._owners, self._known = owners, list(known)
        self._stale, self._doubted = False, None
        self._learnt = self._loop.time()
        for address in self._servers.keys() - known.keys() - {self._first}:
            self._servers.pop(address).close()


def _rows(found: Any, asked: str) -> Iterable[tuple[int, int, list[Address]]]:
    """The answer to `CLUSTER SLOTS`: first and last slot, the primary, and its replicas."""
    for start, end, *nodes in found:
        yield int(start), int(end), [(_host(node[0], asked), int(node[1])) for node in nodes]


def _host(given: bytes | None, asked: str) -> str:
    return given.decode() if given else asked
