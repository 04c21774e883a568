"""`PubSub`: the client for programs without asyncio, with the same methods as `PubSubClient`.

Everything happens in the asyncio client, which runs in an event loop in a thread of its own (see
`portal`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from .client import PubSubClient
from .errors import ClosedError, OperationTimeout, PubSubError
from .portal import Portal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
    from types import TracebackType

    from .generated.wire import Denial
    from .handlers import Handler, StateLoader
    from .options import ReceiveQueue, SendQueue, Settings, TransportChoice
    from .publishing import Batch
    from .subscription import Subscription
    from .values import (
        Event,
        Gap,
        Message,
        Outgoing,
        PresenceChange,
        PresenceMember,
        Published,
        Since,
        StateChange,
        StateName,
        SubscriptionStats,
        TokenCallback,
        TopicInfo,
        Topics,
        Via,
    )

T = TypeVar("T")

_AT_ONCE: Final = 256
"""Messages fetched from the loop's thread in one go: a crossing costs as much as fifty of them."""

_open: weakref.WeakSet[PubSub] = weakref.WeakSet()


class PubSub:
    """A client of Hanzo PubSub that blocks; any number of threads may share one.

    Arguments and methods are those of ``PubSubClient``; coroutine functions are plain functions
    here, async iterators are iterators. Handlers run in threads, may block, and may call the
    client.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        get_token: TokenCallback | None = None,
        transport: TransportChoice = "auto",
        rest_url: str | None = None,
        allow_insecure: bool = False,
        name: str | None = None,
        echo: bool = True,
        on_state: Handler[StateChange] | None = None,
        on_error: Handler[Exception] | None = None,
        send_queue: SendQueue | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self._lock = threading.Lock()
        self._made: Portal | None = None
        self._ended = False
        self._client = PubSubClient(
            url,
            token,
            get_token=get_token,
            transport=transport,
            rest_url=rest_url,
            allow_insecure=allow_insecure,
            name=name,
            echo=echo,
            on_state=self._threaded(on_state),
            on_error=self._threaded(on_error),
            send_queue=send_queue,
            **settings,
        )

    @property
    def state(self) -> StateName:
        """The state at this moment."""
        state = self._client.state
        return "closed" if self._ended and state == "initialized" else state

    @property
    def client_id(self) -> str | None:
        """The id the server gave this client; None before it was ever connected."""
        return self._client.client_id

    @property
    def url(self) -> str:
        """The URL of the WebSocket; it never holds a token."""
        return self._client.url

    def connect(self, timeout: float | None = None) -> None:
        """Connect, and wait until the client is connected; see ``PubSubClient.connect``."""
        self._call(lambda: self._client.connect(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Settle what was published and end; see ``PubSubClient.close``.

        It also happens at the end of the program.
        """
        with self._lock:
            portal, self._ended = self._made, True
        _open.discard(self)
        if portal is None:
            return
        portal.check()
        portal.release_handler()
        try:
            portal.call(lambda: self._client.close(timeout))
        except ClosedError:
            return
        portal.stop()

    def disconnect(self) -> None:
        """``close()`` under the name that HIP-56's sample has for it."""
        self.close()

    def states(self) -> Iterator[StateChange]:
        """Changes of state from this call on; ends when the client has ended."""
        return self._iterate(self._client.states)

    def subscribe(
        self,
        topics: Topics,
        *,
        since: Since | None = None,
        history: int | None = None,
        after: Mapping[str, int] | None = None,
        on_message: Handler[Message] | None = None,
        on_presence: Handler[PresenceChange] | None = None,
        on_gap: Handler[Gap] | None = None,
        presence: bool | None = None,
        state_loader: StateLoader | None = None,
        queue: ReceiveQueue | None = None,
    ) -> BlockingSubscription:
        """Subscribe to topics or patterns, at once; see ``PubSubClient.subscribe``."""

        async def subscribe() -> Subscription:
            return self._client.subscribe(
                topics,
                since=since,
                history=history,
                after=after,
                on_message=self._threaded(on_message),
                on_presence=self._threaded(on_presence),
                on_gap=self._threaded(on_gap),
                presence=presence,
                state_loader=self._threaded(state_loader),
                queue=queue,
            )

        return BlockingSubscription(self._call(subscribe), self._call)

    def publish(
        self,
        topic: str,
        message: Outgoing,
        *,
        ttl: int | None = None,
        id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        via: Via = "auto",
    ) -> Published:
        """Publish one message, and wait until the server has it; see ``PubSubClient.publish``."""
        return self._call(
            lambda: self._client.publish(
                topic, message, ttl=ttl, id=id, key=key, timeout=timeout, via=via
            )
        )

    def publish_many(
        self,
        messages: Sequence[tuple[str, Outgoing] | Mapping[str, Any]],
        *,
        timeout: float | None = None,
        via: Via = "auto",
    ) -> list[Published | PubSubError]:
        """Publish several messages in one request, in order; see ``PubSubClient.publish_many``."""
        return self._call(lambda: self._client.publish_many(messages, timeout=timeout, via=via))

    def batch(self, *, timeout: float | None = None, via: Via = "auto") -> BlockingBatch:
        """Collect publishes and send them together: ``with ps.batch() as b: b.publish(...)``."""

        async def batch() -> Batch:
            return self._client.batch(timeout=timeout, via=via)

        return BlockingBatch(self._call(batch), self._call)

    def history(
        self,
        topic: str,
        *,
        since: Since | None = None,
        before: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Message]:
        """Retained messages of one topic, oldest first; see ``PubSubClient.history``."""
        return self._iterate(
            lambda: self._client.history(
                topic, since=since, before=before, after=after, limit=limit, timeout=timeout
            )
        )

    def presence(self, topic: str, *, timeout: float | None = None) -> list[PresenceMember]:
        """Everybody present on a topic."""
        return self._call(lambda: self._client.presence(topic, timeout=timeout))

    def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: float | None = None
    ) -> None:
        """Change how this client appears; see ``PubSubClient.update_presence``."""
        self._call(lambda: self._client.update_presence(topic, data, timeout=timeout))

    def topics(
        self, prefix: str | None = None, *, limit: int | None = None, timeout: float | None = None
    ) -> list[TopicInfo]:
        """Active topics, by name; see ``PubSubClient.topics``."""
        return self._call(lambda: self._client.topics(prefix, limit=limit, timeout=timeout))

    def topic(self, name: str) -> BlockingTopicHandle:
        """A handle on one topic, with no effect on the wire."""
        return BlockingTopicHandle(self, name)

    def __enter__(self) -> Self:
        self._portal()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Settle what was published and close; after an exception close at once."""
        self.close(None if exc_type is None else 0)

    def __repr__(self) -> str:
        return f"<PubSub {self.url} {self.state}>"

    # ------------------------------------------------------------ inside

    def _portal(self) -> Portal:
        with self._lock:
            if self._ended:
                raise ClosedError
            portal = self._made
            if portal is None:
                portal = self._made = Portal()
                _open.add(self)
        return portal

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal().call(make)

    def _threaded(self, function: Callable[..., Any] | None) -> Any:
        """A handler that runs in a thread; the portal is made when it is first called for."""
        if not callable(function):
            return function

        async def run(*arguments: object) -> None:
            portal = self._made
            if portal is not None:
                await portal.run_handler(function, arguments)

        return run

    def _iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        async def begin() -> AsyncIterator[T]:
            return make()

        source = self._call(begin)

        async def following() -> T | _End:
            return await anext(source, _END)

        return _iterate(lambda: self._call(following))


class BlockingSubscription:
    """Messages of one or more topics: an iterator that waits, and a context.

    Several threads may read one: each message goes to one of them.
    """

    def __init__(self, subscription: Subscription, call: Callable[..., Any]) -> None:
        self._subscription = subscription
        self._call = call
        self._waiting: deque[Message] = deque()

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns asked for."""
        return self._subscription.topics

    @property
    def denied(self) -> tuple[Denial, ...]:
        """The patterns that the server refused while it granted others."""
        return self._subscription.denied

    @property
    def active(self) -> bool:
        """Whether messages may still come."""
        return self._subscription.active

    @property
    def positions(self) -> Mapping[str, int]:
        """Position of the last message handed over, by topic."""
        positions = dict(self._subscription.positions)
        for message in reversed(list(self._waiting)):
            if message.seq is not None:
                positions[message.topic] = message.seq - 1
        return positions

    @property
    def stats(self) -> SubscriptionStats:
        """What was received, handled, dropped, and waits."""
        return self._subscription.stats

    def wait(self) -> Self:
        """Wait until the server has answered.

        Raises:
            PermissionDenied: Nothing was granted.
            OperationTimeout: No answer came in time.
        """

        async def joined() -> None:
            await self._subscription

        self._call(joined)
        return self

    def next(self, timeout: float | None = None) -> Message:
        """Wait for a message.

        Args:
            timeout: Seconds; None waits for as long as it takes.

        Raises:
            OperationTimeout: None came in time.
            ClosedError: The subscription has ended.
        """
        message = self._next(timeout)
        if message is None:
            raise ClosedError(
                "The subscription has ended.", remedy="Subscribe again.", topic=self.topics[0]
            )
        return message

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Messages until none has come for ``timeout`` seconds, or the subscription has ended."""
        while True:
            try:
                message = self._next(timeout)
            except OperationTimeout:
                return
            if message is None:
                return
            yield message

    def events(self) -> Iterator[Event]:
        """Messages, gaps and, where asked for, presence changes, in one order."""
        source = self._subscription.events()

        async def following() -> Event | _End:
            return await anext(source, _END)

        return _iterate(lambda: self._call(following))

    def unsubscribe(self) -> None:
        """End the subscription; messages that wait are given up."""
        self._waiting.clear()
        self._call(self._subscription.unsubscribe)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def __enter__(self) -> Self:
        return self.wait()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ClosedError):
            self.unsubscribe()

    def __repr__(self) -> str:
        return repr(self._subscription).replace("<Subscription", "<BlockingSubscription")

    def _next(self, timeout: float | None) -> Message | None:
        while True:
            with contextlib.suppress(IndexError):
                return self._waiting.popleft()
            if not self._call(lambda: self._fill(timeout)):
                return None

    async def _fill(self, timeout: float | None) -> bool:
        """Put what waits where threads can take it; a cancelled wait loses nothing."""
        if self._waiting:
            return True
        try:
            async with asyncio.timeout(timeout):
                self._waiting.append(await anext(self._subscription))
        except StopAsyncIteration:
            return bool(self._waiting)
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(
                f"No message came within {timeout:g} s.",
                topic=self.topics[0],
                remedy="Wait longer, or go on with something else; nothing was lost.",
                outcome_unknown=False,
            ) from None
        while len(self._waiting) < _AT_ONCE:
            message = self._subscription.take_nowait()
            if message is None:
                break
            self._waiting.append(message)
        return True


class BlockingBatch:
    """Publishes that are sent together at the end of a ``with`` block; see ``Batch``."""

    def __init__(self, batch: Batch, call: Callable[..., Any]) -> None:
        self._batch = batch
        self._call = call

    @property
    def results(self) -> list[Published | PubSubError]:
        """One a message in the order of the calls, once the block has ended."""
        return self._batch.results

    def __len__(self) -> int:
        return len(self._batch)

    def publish(
        self, topic: str, message: Outgoing, *, ttl: int | None = None, id: str | None = None
    ) -> str:
        """Add a message and give its id; see ``Batch.publish``."""
        return self._batch.publish(topic, message, ttl=ttl, id=id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send everything; after an exception in the block, nothing.

        Raises:
            PubSubError: The first error among the results.
        """
        self._call(lambda: self._batch.__aexit__(exc_type, exc, traceback))


class BlockingTopicHandle:
    """One topic of one blocking client; see ``TopicHandle``.

    Attributes:
        name: The topic, or for ``subscribe`` alone a pattern.
    """

    def __init__(self, client: PubSub, name: str) -> None:
        self.name = name
        self._client = client

    def publish(
        self,
        message: Outgoing,
        *,
        ttl: int | None = None,
        id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        via: Via = "auto",
    ) -> Published:
        """Publish to this topic."""
        return self._client.publish(
            self.name, message, ttl=ttl, id=id, key=key, timeout=timeout, via=via
        )

    def subscribe(
        self,
        *,
        since: Since | None = None,
        history: int | None = None,
        after: int | None = None,
        on_message: Handler[Message] | None = None,
        on_presence: Handler[PresenceChange] | None = None,
        on_gap: Handler[Gap] | None = None,
        presence: bool | None = None,
        state_loader: StateLoader | None = None,
        queue: ReceiveQueue | None = None,
    ) -> BlockingSubscription:
        """Subscribe to this topic. ``after`` is a position of this topic."""
        return self._client.subscribe(
            self.name,
            since=since,
            history=history,
            after=None if after is None else {self.name: after},
            on_message=on_message,
            on_presence=on_presence,
            on_gap=on_gap,
            presence=presence,
            state_loader=state_loader,
            queue=queue,
        )

    def history(
        self,
        *,
        since: Since | None = None,
        before: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Message]:
        """Retained messages of this topic, oldest first."""
        return self._client.history(
            self.name, since=since, before=before, after=after, limit=limit, timeout=timeout
        )

    def presence(self, *, timeout: float | None = None) -> list[PresenceMember]:
        """Everybody present on this topic."""
        return self._client.presence(self.name, timeout=timeout)

    def update_presence(self, data: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Change how this client appears on this topic."""
        self._client.update_presence(self.name, data, timeout=timeout)

    def __repr__(self) -> str:
        return f"<BlockingTopicHandle {self.name}>"


class _End:
    """The end of an iterator, where StopIteration cannot travel."""


_END: Final = _End()


def _iterate(following: Callable[[], T | _End]) -> Iterator[T]:
    while not isinstance(item := following(), _End):
        yield item


def _close_all() -> None:
    for client in list(_open):
        with contextlib.suppress(Exception):
            client.close()


atexit.register(_close_all)
