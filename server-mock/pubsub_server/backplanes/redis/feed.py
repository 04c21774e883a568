"""Listens to all shards: over one connection, or in a cluster over one connection per shard.

A lost connection is dialed again. In a cluster, a shard that moves or whose server fails is
restored separately, and the other shards are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ResponseError

from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.errors import refusal
from pubsub_server.backplanes.redis.failure_log import FailureLog, FeedLog
from pubsub_server.backplanes.redis.layout import sent_at
from pubsub_server.backplanes.redis.servers import LINK_ERRORS, RedisError, broken
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link
    from pubsub_server.backplanes.redis.servers import Server
    from pubsub_server.backplanes.redis.wire import Wire

logger = logging.getLogger(__name__)

CHANNELS_A_COMMAND: Final = 1_000
CHECK_EVERY: Final = 1.0
"""Seconds between two checks of which server has each shard."""
PROBES: Final = 8
"""Probes without an answer after which a feed counts as silent."""
LOST_AFTER: Final = 3
"""Probes without an answer after which the listening connection is dialed again."""
LOST_AFTER_AT_MOST: Final = 48
"""Each connection that never answers doubles this number for the next one, up to this maximum, so
that slow dialing eventually succeeds.
"""


class Probe:
    """Checks that a feed receives messages: the node publishes to itself.

    It counts probes, not seconds: a process that was suspended did not listen, so elapsed time
    proves nothing.

    Args:
        timeout: Seconds without its own probe after which a node counts as silent.
        publish: Publishes to the node itself, on the path that messages use.
        tasks: Runs the sending task.
        changed: Called when `receiving` changes.

    Attributes:
        every: Seconds between two probes.
        receiving: Whether the feed has received a probe within the timeout.
        silences: Number of times that it has not.
    """

    def __init__(
        self,
        timeout: float,
        publish: Callable[[], Awaitable[None]],
        tasks: Tasks,
        changed: Callable[[], None],
    ) -> None:
        self.every = timeout / PROBES
        self.receiving = True
        self.silences = 0
        self._publish = publish
        self._tasks = tasks
        self._changed = changed
        self._sending: asyncio.Task[None] | None = None
        self._answered = False
        self._missed = 0
        # Unanswered probes of the current connection.
        self._unanswered = 0
        self._patience = LOST_AFTER
        self._lost = asyncio.Event()

    async def run(self) -> None:
        """Send probes."""
        while True:
            self.send()
            await asyncio.sleep(self.every)
            self._check()

    def send(self) -> None:
        """Publish to the node itself, unless a probe is in progress."""
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.spawn(self._try_to_send())

    def received(self) -> None:
        """The node has received its own probe."""
        self._answered = True
        self._missed = self._unanswered = 0
        self._patience = LOST_AFTER
        if not self.receiving:
            self.receiving = True
            self._changed()

    def connect(self) -> None:
        """A new connection is being dialed."""
        self._unanswered = 0
        self._lost.clear()

    async def watch(self) -> None:
        """Wait until the current connection has missed too many consecutive probes.

        Raises:
            RedisError: It has missed them.
        """
        await self._lost.wait()
        silent = self._patience * self.every
        self._patience = min(LOST_AFTER_AT_MOST, self._patience * 2)
        raise LINK_ERRORS[1](f"nothing was received for {silent:g} s")

    def _check(self) -> None:
        answered, self._answered = self._answered, False
        if answered:
            return
        self._missed += 1
        self._unanswered += 1
        if self._unanswered >= self._patience:
            self._lost.set()
        if self.receiving and self._missed >= PROBES:
            self.receiving = False
            self.silences += 1
            self._changed()

    async def _try_to_send(self) -> None:
        # A failure to send shows as a missing probe.
        with contextlib.suppress(TimeoutError, *LINK_ERRORS):
            async with asyncio.timeout(self._patience * self.every):
                await self._publish()


class Feed:
    """One connection that listens.

    If a client subscribes to a pattern, the node listens to whole shards, as a pattern can match
    any topic; otherwise only to the named topics. During a change between the two, a message that
    arrives on both channels is processed once: the shard's channel takes precedence.

    Args:
        link: To Redis.
        bases: Prefixes of the shards to listen to; all of one slot in a cluster.
        receive: Called with each payload.
        restored: Awaited each time a connection is open and all channels are confirmed.
        timeout: Seconds without a probe of its own node after which a feed counts as silent.
        changed: Called when `receiving` changes.
        log: Logs the loss of the connection.
        begun: Called before a new connection receives its first message, with the time at which
            Redis has sent the last one of the former connection, Unix ms; 0 if it is unknown.

    Attributes:
        up: Whether a connection is open and all channels are confirmed.
        losses: Number of times that a connection was lost or could not be opened.
    """

    def __init__(
        self,
        link: Link,
        bases: Sequence[str],
        receive: Callable[[bytes], None],
        restored: Callable[[], Coroutine[Any, Any, None]],
        timeout: float,
        changed: Callable[[], None],
        log: FeedLog,
        begun: Callable[[int], None] = lambda sent: None,
    ) -> None:
        self._link = link
        # Only this feed publishes there.
        self._own = f"{bases[0]}:alive:{secrets.token_hex(8)}"
        self._own_bytes = self._own.encode()
        self._receive = receive
        self._restored = restored
        self._begun = begun
        self._loop = asyncio.get_running_loop()
        self._shards = frozenset(f"{base}:a" for base in bases)
        self._channels: set[str] = set()
        self._patterns = 0
        # Channels requested on this connection, those not confirmed yet, and those to be ended.
        self._asked: set[str] = set()
        self._unconfirmed: set[str] = set()
        self._ending: set[str] = set()
        # Whether whole shards are among them.
        self._whole = False
        # Channels to subscribe to and to unsubscribe from with the next command.
        self._adding: set[str] = set()
        self._leaving: set[str] = set()
        self._switching = False
        self._waiters: dict[str, dict[asyncio.Future[None], None]] = {}
        self._changed = asyncio.Event()
        self._fresh = False
        self._started = False
        self._tasks = Tasks(self._loop, logger, "feed")
        self._log = log
        self._probe = Probe(timeout, self._send_to_itself, self._tasks, changed)
        self._address = ""
        # The newest payload of the current connection; None before the first connection.
        self._newest: bytes | None = None
        self.up = False
        self.losses = 0

    # ------------------------------------------------------------ what is wanted

    def join(self, channel: str) -> None:
        """Listen to the channel of a topic."""
        self._channels.add(channel)
        if not self._patterns:
            self._want((channel,))

    def leave(self, channel: str) -> None:
        """Stop listening to the channel of a topic."""
        self._channels.discard(channel)
        self._part((channel,))

    def join_pattern(self) -> None:
        """Listen to whole shards; called once for each pattern."""
        self._patterns += 1
        if self._patterns == 1:
            self._switching = True
            self._want(self._shards)
            self._part(self._channels)

    def leave_pattern(self) -> None:
        """A pattern has ended; after the last one, listen only to named topics."""
        self._patterns -= 1
        if not self._patterns:
            self._switching = True
            self._want(self._channels)
            self._part(self._shards)

    def ready(self, channels: Iterable[str] | None) -> list[asyncio.Future[None]]:
        """Awaitables until channels of topics are confirmed; None stands for whole shards.

        Cancel those that you no longer wait for.
        """
        waiting: list[asyncio.Future[None]] = []
        for each in self._shards if channels is None or self._patterns else channels:
            if not self._confirmed(each):
                future: asyncio.Future[None] = self._loop.create_future()
                self._waiters.setdefault(each, {})[future] = None
                future.add_done_callback(partial(self._forget, each))
                waiting.append(future)
        return waiting

    def _forget(self, channel: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(channel)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[channel]

    # ------------------------------------------------------------ life

    @property
    def receiving(self) -> bool:
        """Whether the node has received its own probe within the timeout."""
        return self._probe.receiving

    @property
    def silences(self) -> int:
        """Number of times that no probe arrived within the timeout."""
        return self._probe.silences

    @property
    def settled(self) -> int | None:
        """Unix ms of Redis: everything that this connection sent before has arrived.

        0 if it is unknown; None before the first connection: no client has a subscription yet.
        """
        if self._newest is None:
            return None
        return sent_at(self._newest) if self.up and self._newest else 0

    def start(self) -> None:
        """Start, unless it has started."""
        if not self._started:
            self._started = True
            self._tasks.keep(self._run)
            self._tasks.keep(self._probe.run)

    async def close(self) -> None:
        """Stop listening."""
        await self._tasks.stop()
        for futures in self._waiters.values():
            for future in futures:
                future.cancel()
        self._waiters.clear()

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._listen()
            except LINK_ERRORS as error:
                if self.up:
                    self._log.lost(self, self._address)
                    backoff.reset()
                self._log.failed(self, error)
            except RedisError:
                logger.exception("the feed from Redis failed")
            finally:
                self.up = False
                self.losses += 1
            await backoff.wait()

    async def _listen(self) -> None:
        self._probe.connect()
        server = await self._link.server(self._own)
        self._address = server.address
        wire = server.listen(self._take_push)
        try:
            await self._tasks.race(self._listen_by(server, wire), self._probe.watch())
        except LINK_ERRORS as error:
            await self._link.failed(server, error)
            raise
        except ResponseError as error:
            raise refusal(error) or error from None
        finally:
            server.stop_listening(wire)

    async def _listen_by(self, server: Server, wire: Wire) -> None:
        with broken():
            await wire.open()
        self._begun(sent_at(self._newest or b""))
        for kept in (self._asked, self._unconfirmed, self._ending, self._leaving):
            kept.clear()
        self._whole = False
        self._newest = b""
        self._adding = set(self._wanted)
        self._fresh = True
        # A connection needs a channel to listen, and the Redis user needs the permission.
        self._unconfirmed.add(self._own)
        wire.change_channels(("SSUBSCRIBE", self._own))
        self._changed.set()
        await self._tasks.race(wire.ended(), self._send(server, wire))

    def _take_push(self, push: Sequence[Any]) -> None:
        """Process a push of the connection."""
        kind = push[0]
        if kind == b"smessage":
            channel, self._newest = push[1], push[2]
            if channel == self._own_bytes:
                self._probe.received()
            elif not (self._whole and self._repeats(channel.decode())):
                self._receive(push[2])
        elif kind == b"ssubscribe":
            self._came(push[1].decode())
        elif kind == b"sunsubscribe" and push[1]:
            self._went(push[1].decode())

    async def _send(self, server: Server, wire: Wire) -> None:
        while True:
            if not self._link.still(self._own, server):
                raise LINK_ERRORS[0]("another server has this shard now")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_EVERY):
                    await self._changed.wait()
            if self._changed.is_set():
                self._changed.clear()
                self._update(wire)

    async def _send_to_itself(self) -> None:
        await self._link.publish_time(self._own)

    def _update(self, wire: Wire) -> None:
        wanted = self._wanted
        adding = [each for each in self._adding if each in wanted and each not in self._asked]
        self._adding.clear()
        self._asked.update(adding)
        self._whole = not self._shards.isdisjoint(self._asked)
        self._unconfirmed.update(adding)
        # End a channel only when its replacement is confirmed.
        leaving: list[str] = []
        if not (self._switching and self._coming):
            self._switching = False
            leaving = [each for each in self._leaving if each in self._asked and each not in wanted]
            self._leaving.clear()
            self._ending.update(leaving)
        for some in _pieces(adding):
            wire.change_channels(("SSUBSCRIBE", *some))
        for some in _pieces(leaving):
            wire.change_channels(("SUNSUBSCRIBE", *some))
        self._complete()

    # ------------------------------------------------------------ inside

    @property
    def _wanted(self) -> set[str] | frozenset[str]:
        return self._shards if self._patterns else self._channels

    @property
    def _coming(self) -> bool:
        """Whether channels are not confirmed, or are wanted again while they end."""
        return bool(self._unconfirmed) or not self._ending.isdisjoint(self._wanted)

    def _confirmed(self, channel: str) -> bool:
        return (
            channel in self._asked
            and channel not in self._unconfirmed
            and channel not in self._ending
        )

    def _want(self, channels: Iterable[str]) -> None:
        self._adding.update(channels)
        self._leaving.difference_update(channels)
        self._changed.set()

    def _part(self, channels: Iterable[str]) -> None:
        self._leaving.update(channels)
        self._adding.difference_update(channels)
        self._changed.set()

    def _repeats(self, channel: str) -> bool:
        """Whether the messages of this channel also arrive on that of its whole shard."""
        base, named, _ = channel.partition(":t:")
        return bool(named) and self._confirmed(f"{base}:a")

    def _came(self, channel: str) -> None:
        if channel not in self._unconfirmed:
            return
        self._unconfirmed.discard(channel)
        if self._confirmed(channel):
            _resolve(self._waiters.pop(channel, ()))
        if not self._unconfirmed:
            self._complete()
            if self._leaving:
                self._changed.set()

    def _complete(self) -> None:
        if self._coming or self._adding:
            return
        # All wanted channels are confirmed, whichever of them a caller waited for.
        for futures in self._waiters.values():
            _resolve(futures)
        self._waiters.clear()
        if self._fresh:
            self._fresh = False
            self.up = True
            self._log.regained(self)
            self._probe.send()
            self._tasks.spawn(self._restored())

    def _went(self, channel: str) -> None:
        if channel == self._own:
            raise LINK_ERRORS[0]("another server has this shard now")
        self._asked.discard(channel)
        self._whole = not self._shards.isdisjoint(self._asked)
        self._ending.discard(channel)
        if channel in self._wanted:
            self._want((channel,))


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _pieces(channels: Iterable[str]) -> Iterable[Sequence[str]]:
    names = list(channels)
    for start in range(0, len(names), CHANNELS_A_COMMAND):
        yield names[start : start + CHANNELS_A_COMMAND]


class Feeds:
    """Receives the messages that this node's clients need.

    Args:
        link: To Redis.
        layout: Names of channels.
        receive: Called with each payload.
        restored: Awaited with the shards each time a connection is open and all its channels are
            confirmed.
        timeout: Seconds without a probe of its own node after which a connection counts as silent.
        begun: Called with the shards, and as for `Feed`.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        receive: Callable[[bytes], None],
        restored: Callable[[Sequence[int]], Coroutine[Any, Any, None]],
        timeout: float,
        begun: Callable[[Sequence[int], int], None] = lambda shards, sent: None,
    ) -> None:
        self._layout = layout
        self._failures = FailureLog(logger)
        # Whether the log says that some shards are silent.
        self._silence_logged = False
        self._watcher: Callable[[], None] = lambda: None
        log = FeedLog(logger)
        self._lanes = [
            Feed(
                link,
                [layout.bases[shard] for shard in lane],
                receive,
                partial(restored, lane),
                timeout,
                self._report_change,
                log,
                partial(begun, lane),
            )
            for lane in layout.lanes
        ]

    def start(self) -> None:
        """Start, unless it has started."""
        for feed in self._lanes:
            feed.start()

    async def close(self) -> None:
        """Stop listening."""
        await asyncio.gather(*(feed.close() for feed in self._lanes))

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this each time a connection becomes silent, or receives probes again."""
        self._watcher = changed

    @property
    def up(self) -> bool:
        """Whether every connection is open and all its channels are confirmed."""
        return all(feed.up for feed in self._lanes)

    @property
    def receiving(self) -> bool:
        """Whether a connection has received a probe of its node within the timeout.

        A node whose connections are all silent is cut off. A single one is probably silent because
        its server has failed, for all nodes alike.
        """
        return any(feed.receiving for feed in self._lanes)

    def settled(self) -> int:
        """See `Feed.settled`; of all connections."""
        known = (feed.settled for feed in self._lanes)
        return min((time for time in known if time is not None), default=0)

    def receives(self, pattern: str) -> bool:
        """Whether messages of this topic, or any messages of this pattern, arrive."""
        return self.receiving if is_wildcard(pattern) else self._of(pattern).receiving

    @property
    def silent_shards(self) -> int:
        """Number of shards whose connection has received no probe within the timeout."""
        shards = len(self._layout.bases) // len(self._lanes)
        return shards * sum(not feed.receiving for feed in self._lanes)

    @property
    def silences(self) -> int:
        """Number of times that a connection received no probe within the timeout."""
        return sum(feed.silences for feed in self._lanes)

    @property
    def losses(self) -> int:
        """Number of times that a connection was lost or could not be opened."""
        return sum(feed.losses for feed in self._lanes)

    def join(self, topic: str) -> None:
        """Listen to the channel of a topic."""
        self._of(topic).join(self._channel(topic))

    def leave(self, topic: str) -> None:
        """Stop listening to the channel of a topic."""
        self._of(topic).leave(self._channel(topic))

    def join_pattern(self) -> None:
        """Listen to whole shards; called once for each pattern."""
        for feed in self._lanes:
            feed.join_pattern()

    def leave_pattern(self) -> None:
        """A pattern has ended; after the last one, listen only to named topics."""
        for feed in self._lanes:
            feed.leave_pattern()

    def ready(self, patterns: Iterable[str]) -> list[asyncio.Future[None]]:
        """Awaitables until the channels of these topics and patterns are confirmed."""
        names = list(patterns)
        channels: dict[Feed, list[str]] = {}
        for topic in filterfalse(is_wildcard, names):
            channels.setdefault(self._of(topic), []).append(self._channel(topic))
        waiting = [each for feed, some in channels.items() for each in feed.ready(some)]
        if any(map(is_wildcard, names)):
            waiting += [each for feed in self._lanes for each in feed.ready(None)]
        return waiting

    def _report_change(self) -> None:
        silent = self.silent_shards
        if silent and self.receiving:
            # The loss of a server shows in one connection after the other.
            self._silence_logged = True
            self._failures.note(
                "this node receives nothing from some shards of Redis; check the servers of the"
                " cluster (metric hanzo_pubsub_feed_silent_shards)"
            )
        elif not silent and self._silence_logged:
            self._silence_logged = False
            self._failures.succeeded()
            logger.warning("this node receives messages from all shards of Redis again")
        self._watcher()

    def _of(self, topic: str) -> Feed:
        return self._lanes[self._layout.lane(topic)]

    def _channel(self, topic: str) -> str:
        return self._layout.channel(topic)
