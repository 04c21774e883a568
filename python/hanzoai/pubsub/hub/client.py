"""Client of the hub protocol for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidTopic,
    OperationTimeout,
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
from hanzoai.pubsub.links import (
    Backoff,
    Link,
    Target,
    parse_target,
    payload,
    to_bytes,
    to_text,
)
from hanzoai.pubsub.unparsed import FrameError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType

    from hanzoai.pubsub.durations import Duration

PORT: Final = 13000
"""Default port."""


@dataclass(frozen=True, slots=True)
class HubMessage:
    """A published message, once for each topic of the subscription.

    Attributes:
        topic: The topic; bytes that are not UTF-8 are lone surrogates (PEP 383).
        data: The data.
    """

    topic: str
    data: bytes


class HubClient:
    """Publishes to a hub, and subscribes to it.

    Each subscription has its own connection. All publishes share another one, which keeps the order
    of the calls.

    Args:
        url: ``hub://HOST:PORT``, ``hub+tls://HOST:PORT`` or ``hub+unix:PATH``; the port is 13000
            by default.
        ssl: SSL context for ``hub+tls``: the authorities to trust, and your certificate if the hub
            requires one.
        connect_timeout: Seconds or a timedelta for opening a connection.
        reconnect_min: Seconds or a timedelta before the first attempt after a lost connection.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta.

    Raises:
        InvalidOption: The URL cannot be read.
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
        self._target = parse_target(url, "hub", PORT)
        self._ssl = ssl
        self._connect_timeout = seconds_of(connect_timeout)
        self._reconnect = (seconds_of(reconnect_min), seconds_of(reconnect_max))
        self._link: Link | None = None
        self._reading: asyncio.Task[None] | None = None
        self._unanswered: deque[asyncio.Future[int]] = deque()
        self._lock = asyncio.Lock()
        self._subscriptions: set[HubSubscription] = set()
        self._closed = False

    @property
    def target(self) -> str:
        """The address of the peer, ``HOST:PORT`` or a path."""
        return str(self._target)

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
            timeout: Seconds or a timedelta, opening the connection included.

        Returns:
            The number of subscribers of the hub, summed over the topics.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            InvalidPayload: `data` is neither text nor bytes.
            ConnectionFailed: The hub cannot be reached, or the connection ended before the answer.
            OperationTimeout: No answer arrived in time; the hub may still have published it.
            ProtocolError: The answer is not of this protocol.
            ClosedError: The client is closed.
        """
        seconds = seconds_of(timeout)
        wire = encode(Publish(_topics(topics), payload(data)))
        try:
            async with asyncio.timeout(seconds):
                answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                async with self._lock:
                    try:
                        link = await self._publishing()
                        self._unanswered.append(answer)
                        await link.write(wire)
                    except BaseException:
                        # A partial request would corrupt all later ones.
                        await self._hang_up()
                        raise
                return await answer
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(
                f"{self._target} did not answer within {seconds:g} s.", outcome_unknown=True
            ) from None

    def subscribe(self, *topics: str | bytes) -> HubSubscription:
        """Receive messages of these topics from now on.

        The connection opens with ``async with``, or with the first requested message.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            ClosedError: The client is closed.
        """
        if self._closed:
            raise ClosedError
        subscription = HubSubscription(
            self._target,
            _topics(topics),
            self._ssl,
            self._connect_timeout,
            Backoff(*self._reconnect),
            self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        """End all connections; calling it again does nothing."""
        self._closed = True
        closing = [subscription.close() for subscription in self._subscriptions]
        await asyncio.gather(*closing, self._hang_up())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _publishing(self) -> Link:
        if self._closed:
            raise ClosedError
        if self._link is not None and self._link.ended:
            await self._hang_up()
        if self._link is None:
            self._link = await Link.open(self._target, self._ssl, self._connect_timeout)
            if self._closed:
                raise ClosedError
            self._unanswered = deque()
            self._reading = asyncio.create_task(self._answer(self._link, self._unanswered))
        return self._link

    async def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    async def _answer(self, link: Link, waiting: deque[asyncio.Future[int]]) -> None:
        """Settle the publishes of one connection by the hub's answers, in order."""
        decoder = ReplyDecoder()
        error: Exception = ConnectionFailed("The hub closed the connection.")
        try:
            while data := await link.read():
                decoder.feed(data)
                while replies := decoder.take():
                    _settle(waiting, replies)
        except FrameError as fault:
            error = ProtocolError(f"{self._target} does not use the hub protocol: {fault}.")
        finally:
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # the caller may no longer wait
            waiting.clear()
            await link.close()


class HubSubscription:
    """Messages of several topics, in the order in which they arrive.

    The client reconnects after a lost connection and subscribes to all topics again; messages
    published meanwhile are lost. A program that does not read delays only its own connection.

    Attributes:
        id: Id that the hub assigns; it changes with each reconnect, and is 0 before the first
            connection.
        reconnects: Number of reconnects.
    """

    def __init__(
        self,
        target: Target,
        topics: tuple[bytes, ...],
        ssl: ssl.SSLContext | None,
        timeout: float,
        backoff: Backoff,
        closing: Callable[[HubSubscription], None],
    ) -> None:
        self._target = target
        self._topics = dict.fromkeys(topics)
        self._ssl = ssl
        self._timeout = timeout
        self._backoff = backoff
        self._closing = closing
        self._link: Link | None = None
        self._decoder = ReplyDecoder()
        self._found: deque[HubMessage] = deque()
        self._asked: deque[asyncio.Future[Reply]] = deque()
        self._lock = asyncio.Lock()
        self._opened = False
        self._ended = asyncio.Event()
        self.id = 0
        self.reconnects = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The current topics."""
        return tuple(map(to_text, self._topics))

    async def open(self) -> None:
        """Connect and subscribe; the hub has confirmed the subscription when this returns.

        Raises:
            ConnectionFailed: The hub cannot be reached.
            OperationTimeout: It did not answer in time.
            ProtocolError: The answer is not of this protocol.
            ClosedError: The subscription is closed.
        """
        async with self._lock:
            await self._ensure()

    async def recv(self, timeout: Duration | None = None) -> HubMessage:
        """Return the next message.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived within `timeout`.
            ConnectionFailed: The first connection could not be opened.
            ProtocolError: The hub sends data that does not belong to this protocol.
            ClosedError: The subscription is closed.
        """
        seconds = seconds_of(timeout)
        if self._found:
            return self._found.popleft()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    async with self._lock:
                        if self._found:
                            return self._found.popleft()
                        await self._fill(await self._ensure())
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(f"No message arrived within {seconds:g} s.", remedy="") from None

    async def add(self, *topics: str | bytes) -> int:
        """Subscribe to more topics.

        Returns:
            How many of them are new to the hub.

        Raises:
            InvalidTopic: There are too many topics, or one is too long.
            ConnectionFailed: The connection ended before the answer; the client requests the topics
                with the next connection.
            OperationTimeout: The hub did not answer in time.
        """
        names = _topics([*self._topics, *topics])[len(self._topics) :]
        self._topics |= dict.fromkeys(names)
        reply = await self._change(Add(self.id, names), Added)
        return reply.topics

    async def remove(self, *topics: str | bytes) -> int:
        """Unsubscribe from topics.

        Returns:
            How many of them the hub knew.

        Raises:
            ConnectionFailed: The connection ended before the answer.
            OperationTimeout: The hub did not answer in time.
        """
        names = _topics(topics)
        for name in names:
            self._topics.pop(name, None)
        reply = await self._change(Remove(self.id, names), Removed)
        return reply.topics

    async def __aiter__(self) -> AsyncIterator[HubMessage]:
        """Yield messages until the subscription is closed."""
        while True:
            try:
                yield await self.recv()
            except ClosedError:
                return

    async def close(self) -> None:
        """Unsubscribe and end the connection; calling it again does nothing."""
        self._ended.set()
        self._closing(self)
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _change(
        self, request: Add | Remove, expected: type[Added | Removed]
    ) -> Added | Removed:
        """Request more or fewer topics, and read until the answer arrives."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                link = self._link
                if link is None:
                    raise ConnectionFailed("The subscription is not connected.")
                self._asked.append(answer)
                await link.write(encode(request))
                while not answer.done():
                    async with self._lock:  # the owner may be reading the answer
                        if not answer.done():
                            await self._fill(link)
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(f"{self._target} did not answer in time.") from None
        finally:
            answer.cancel()
        reply = answer.result()
        if not isinstance(reply, expected):
            raise self._strange(reply)
        return reply

    async def _fill(self, link: Link) -> None:
        """Read received messages and answers."""
        data = await link.read()
        if self._ended.is_set():
            raise ClosedError
        if not data:
            self._link = None
            for answer in self._asked:
                if not answer.done():
                    answer.set_exception(
                        ConnectionFailed("The connection ended before the answer.")
                    )
            self._asked.clear()
            await link.close()
            return
        self._decoder.feed(data)
        try:
            while replies := self._decoder.take():
                for reply in replies:
                    self._dispatch(reply)
        except FrameError as error:
            await self.close()
            raise ProtocolError(f"{self._target} does not use the hub protocol: {error}") from None

    def _dispatch(self, reply: Reply) -> None:
        if isinstance(reply, Push):
            self._found.append(HubMessage(to_text(reply.topic), reply.data))
            return
        if not self._asked:
            raise FrameError("bad_opcode", "an answer without a request")
        answer = self._asked.popleft()
        if not answer.done():
            answer.set_result(reply)

    async def _ensure(self) -> Link:
        while self._link is None:
            if self._opened:
                await self._backoff.sleep(self._ended)
            if self._ended.is_set():
                raise ClosedError
            try:
                async with asyncio.timeout(self._timeout):
                    await self._subscribe()
            except TimeoutError as error:
                if not self._opened:
                    if isinstance(error, OperationTimeout):
                        raise
                    raise OperationTimeout(f"{self._target} did not answer in time.") from None
            except ConnectionFailed:
                if not self._opened:
                    raise
        return self._link

    async def _subscribe(self) -> None:
        link = await Link.open(self._target, self._ssl, self._timeout)
        try:
            self._decoder = ReplyDecoder()
            reply = await self._introduce(link)
        except FrameError as error:
            await link.close()
            raise ProtocolError(f"{self._target} does not use the hub protocol: {error}") from None
        except BaseException:
            await link.close()
            raise
        if self._ended.is_set():
            await link.close()
            raise ClosedError
        self.id = reply.id
        self.reconnects += self._opened
        self._opened = True
        self._backoff.reset()
        self._link = link

    async def _introduce(self, link: Link) -> Subscribed:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked = deque([answer])
        await link.write(encode(Subscribe(tuple(self._topics))))
        while not answer.done():
            data = await link.read()
            if not data:
                raise ConnectionFailed("The hub closed the connection.")
            self._decoder.feed(data)
            for reply in self._decoder.take():
                self._dispatch(reply)
        first = answer.result()
        if not isinstance(first, Subscribed):
            raise self._strange(first)
        return first

    def _strange(self, reply: Reply) -> ProtocolError:
        return ProtocolError(f"{self._target} answered with {type(reply).__name__}.")


def _topics(topics: str | bytes | Iterable[str | bytes]) -> tuple[bytes, ...]:
    given = [topics] if isinstance(topics, str | bytes) else topics
    names = tuple(map(to_bytes, given))
    if len(names) > MAX_TOPICS:
        raise InvalidTopic(f"A request has at most {MAX_TOPICS} topics, not {len(names)}.")
    for name in names:
        if len(name) > MAX_TOPIC:
            raise InvalidTopic(f"A topic has at most {MAX_TOPIC} bytes, not {len(name)}.")
    return names


def _settle(waiting: deque[asyncio.Future[int]], replies: Iterable[Reply]) -> None:
    for reply in replies:
        if not isinstance(reply, Published) or not waiting:
            raise FrameError("bad_opcode", "an answer without a request")
        answer = waiting.popleft()
        if not answer.done():
            answer.set_result(reply.reached)
