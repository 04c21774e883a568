"""Client of the hub protocol for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import (
    ConnectionFailed,
    InvalidTopic,
    PermissionDenied,
    ProtocolError,
)
from hanzoai.pubsub.hub.codec import (
    MAX_TOPIC,
    MAX_TOPICS,
    Add,
    Added,
    Publish,
    Published,
    Push,
    Remove,
    Removed,
    Reply,
    ReplyDecoder,
    Subscribe,
    Subscribed,
    encode,
)
from hanzoai.pubsub.links.clients import LinkClient, LinkSubscription, TimeLimit, foreign
from hanzoai.pubsub.links.connections import parse_target, payload, to_text, topic_bytes
from hanzoai.pubsub.links.unparsed import FrameError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.links.clients import Dialing
    from hanzoai.pubsub.links.connections import Link

PORT: Final = 13000
"""Default port."""
UNKNOWN: Final = (
    "The hub may have published it: the protocol has no message ids that detect a repeat."
)
ASK_THE_HUB: Final = "Look into the log of the hub: it names the first denied topic."

logger = logging.getLogger("hanzoai.pubsub")

Answer = TypeVar("Answer", Added, Removed, Subscribed)


@dataclass(frozen=True, slots=True)
class HubMessage:
    """A published message. It arrives once for each of its topics that you subscribe to.

    Attributes:
        topic: The topic; bytes that are not UTF-8 are lone surrogates (PEP 383).
        data: The data.
    """

    topic: str
    data: bytes


class HubClient(LinkClient):
    """Publishes to a hub, and subscribes to it.

    Each subscription has its own connection. All publishes share another one, which keeps the order
    of the calls.

    Args:
        url: ``hub://HOST:PORT``, ``hub+tls://HOST:PORT`` or ``hub+unix:PATH``; the port is 13000
            by default.
        ssl: SSL context for ``hub+tls``: the authorities to trust, and your certificate if the hub
            requires one.
        connect_timeout: Seconds or a timedelta for opening a connection; default 10.
        reconnect_min: Seconds or a timedelta before the first attempt after a lost connection;
            default 0.1.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta; default 10.

    Raises:
        InvalidOption: The URL cannot be read, another option has a wrong type, or ``ssl`` is given
            for a URL without TLS.
    """

    def __init__(
        self,
        url: str = "hub://127.0.0.1",
        *,
        ssl: ssl.SSLContext | None = None,
        connect_timeout: Duration = 10.0,
        reconnect_min: Duration = 0.1,
        reconnect_max: Duration = 10.0,
    ) -> None:
        target = parse_target(url, "hub", PORT)
        super().__init__(target, ssl, connect_timeout, reconnect_min, reconnect_max)
        self._unanswered: deque[asyncio.Future[int]] = deque()

    async def publish(
        self,
        topics: str | bytes | Iterable[str | bytes],
        data: str | bytes,
        *,
        timeout: Duration = 10.0,
    ) -> int:
        """Publish data to one topic or several, and wait for the hub's answer.

        Many calls may be in flight at the same time; the hub processes them in order.

        Args:
            topics: At most 255, each of at most 255 bytes. A topic given twice is delivered twice.
            data: Text is sent as UTF-8.
            timeout: Seconds or a timedelta, opening the connection included; default 10.

        Returns:
            The number of subscribers of the hub, summed over the topics. A topic to which you may
            not publish counts 0, too.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            InvalidPayload: `data` is neither text nor bytes.
            ConnectionFailed: The hub cannot be reached, or the connection ended before the answer;
                then the hub may have published it.
            OperationTimeout: No answer arrived in time; the hub may still have published it.
            ProtocolError: The answer is not of this protocol.
            ClosedError: The client is closed.
        """
        seconds = seconds_of(timeout)
        wire = encode(Publish(_topics(topics), payload(data)))
        async with TimeLimit(
            seconds, self._dialing.target, "did not answer", remedy=UNKNOWN, outcome_unknown=True
        ):
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            await self._write(wire, self._begin, lambda: self._unanswered.append(answer))
            return await answer

    def subscribe(self, *topics: str | bytes) -> HubSubscription:
        """Receive messages of these topics from now on.

        The connection opens with ``async with``, or with the first requested message. Opening it
        raises PermissionDenied if the hub grants none of the topics. If it grants only some, the
        client logs a warning with their number, because the hub does not name them.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            ClosedError: The client is closed.
        """
        self._check_open()
        subscription = HubSubscription(self._dialing, _topics(topics), self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    def _begin(self, link: Link) -> Coroutine[Any, Any, None]:
        self._unanswered = deque()
        return self._answer(link, self._unanswered)

    async def _answer(self, link: Link, waiting: deque[asyncio.Future[int]]) -> None:
        """Settle the publishes of one connection by the hub's answers, in order."""
        decoder = ReplyDecoder()
        error: Exception = ConnectionFailed(
            "The connection ended before the hub answered.", remedy=UNKNOWN
        )
        try:
            while data := await link.read():
                decoder.feed(data)
                while replies := decoder.decode():
                    _resolve(waiting, replies)
        except FrameError as fault:
            error = foreign(self.target, "the hub protocol", fault)
        finally:
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # the caller may no longer wait
            await link.close()


class HubSubscription(LinkSubscription[HubMessage]):
    """Messages of several topics, in the order in which they arrive.

    The hub has confirmed the subscription when ``open`` returns. The client reconnects after a lost
    connection and subscribes to all topics again; messages published meanwhile are lost. A program
    that does not read delays only its own connection.

    Attributes:
        id: Id that the hub assigns; it changes with each reconnect, and is 0 before the first
            connection.
        reconnects: Number of reconnects.
    """

    _protocol = "the hub protocol"

    def __init__(
        self,
        dialing: Dialing,
        topics: tuple[bytes, ...],
        closing: Callable[[LinkSubscription[Any]], None],
    ) -> None:
        super().__init__(dialing, closing)
        self._topics = dict.fromkeys(topics)
        self._decoder = ReplyDecoder()
        self._asked: deque[asyncio.Future[Reply]] = deque()
        # Numbers of the last warning, which is not repeated after each reconnect.
        self._partly: tuple[int, int] | None = None
        self.id = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The current topics."""
        return tuple(map(to_text, self._topics))

    async def add(self, *topics: str | bytes) -> int:
        """Subscribe to more topics.

        Returns:
            The number of topics that the hub has added: it does not count topics that it denies, or
            that the connection already had.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            ConnectionFailed: The connection ended before the answer; the client requests the topics
                with the next connection.
            OperationTimeout: The hub did not answer in time.
        """
        names = _topics([*self._topics, *topics])[len(self._topics) :]
        self._topics |= dict.fromkeys(names)
        if self.id:
            reply = await self._change(Add(self.id, names), Added)
            return reply.topics
        # Only a subscription to at least one topic gets an id.
        first = await self._change(Subscribe(names), Subscribed)
        self.id = first.id
        return first.topics

    async def remove(self, *topics: str | bytes) -> int:
        """Unsubscribe from topics.

        Returns:
            The number of topics that the hub has removed.

        Raises:
            ConnectionFailed: The connection ended before the answer.
            OperationTimeout: The hub did not answer in time.
        """
        names = _topics(topics)
        for name in names:
            self._topics.pop(name, None)
        reply = await self._change(Remove(self.id, names), Removed)
        return reply.topics

    async def _change(self, request: Add | Remove | Subscribe, expected: type[Answer]) -> Answer:
        """Request more or fewer topics, and read until the answer arrives."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            async with TimeLimit(self._dialing.timeout, self._dialing.target, "did not answer"):
                link = self._link
                if link is None:
                    raise ConnectionFailed("The subscription is not connected.")
                self._asked.append(answer)
                await link.write(encode(request))
                while not answer.done():
                    async with self._lock:  # the owner may be reading the answer
                        if not answer.done():
                            await self._read(link)
        finally:
            answer.cancel()
        reply = answer.result()
        if not isinstance(reply, expected):
            raise self._strange(reply)
        return reply

    def _decode(self, data: bytes) -> None:
        self._decoder.feed(data)
        while replies := self._decoder.decode():
            for reply in replies:
                self._dispatch(reply)

    def _dispatch(self, reply: Reply) -> None:
        if isinstance(reply, Push):
            self._found.append(HubMessage(to_text(reply.topic), reply.data))
            return
        if not self._asked:
            raise FrameError("bad_opcode", "an answer without a request")
        answer = self._asked.popleft()
        if not answer.done():
            answer.set_result(reply)

    def _lost(self) -> None:
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(ConnectionFailed("The connection ended before the answer."))

    async def _subscribe(self, link: Link) -> None:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._decoder = ReplyDecoder()
        self._asked = deque([answer])
        await link.write(encode(Subscribe(tuple(self._topics))))
        while not answer.done():
            data = await link.read()
            if not data:
                raise ConnectionFailed("The hub closed the connection.")
            self._decode(data)
        first = answer.result()
        if not isinstance(first, Subscribed):
            raise self._strange(first)
        self._check_granted(first.topics)
        self.id = first.id
        self._backoff.reset()

    def _check_granted(self, granted: int) -> None:
        """Report denied topics: the answer of the hub is the number of granted ones."""
        asked, target = len(self._topics), self._dialing.target
        if granted >= asked:
            return
        if not granted:
            topic = self.topics[0] if asked == 1 else None
            what = "the topic" if asked == 1 else f"any of the {asked} topics"
            raise PermissionDenied(
                f"{target} does not grant {what}.", topic=topic, remedy=ASK_THE_HUB
            )
        if self._partly != (granted, asked):
            self._partly = granted, asked
            logger.warning(
                "%s grants only %d of %d topics. %s", target, granted, asked, ASK_THE_HUB
            )

    def _strange(self, reply: Reply) -> ProtocolError:
        return ProtocolError(f"{self._dialing.target} answered with {type(reply).__name__}.")


def _topics(topics: object) -> tuple[bytes, ...]:
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        names: tuple[bytes, ...] = (topic_bytes(topics),)
    else:
        names = tuple(map(topic_bytes, cast("Iterable[object]", topics)))
    if len(names) > MAX_TOPICS:
        raise InvalidTopic(f"A request has at most {MAX_TOPICS} topics, not {len(names)}.")
    for name in names:
        if len(name) > MAX_TOPIC:
            raise InvalidTopic(f"A topic has at most {MAX_TOPIC} bytes, not {len(name)}.")
    return names


def _resolve(waiting: deque[asyncio.Future[int]], replies: Iterable[Reply]) -> None:
    for reply in replies:
        if not isinstance(reply, Published) or not waiting:
            raise FrameError("bad_opcode", "an answer without a request")
        answer = waiting.popleft()
        if not answer.done():
            answer.set_result(reply.reached)
