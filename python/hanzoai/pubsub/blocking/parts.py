"""Objects of the blocking client: subscriptions, batches, iterators."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import ClosedError, OperationTimeout, PubSubError, UsageError
from hanzoai.pubsub.model import Data_co
from hanzoai.pubsub.runtime.environment import ForkedError
from hanzoai.pubsub.values import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from hanzoai.pubsub.generated.wire import Denial
    from hanzoai.pubsub.payload_models import PayloadModel
    from hanzoai.pubsub.runtime.publisher import Batch
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.values import Duration, Event, Outgoing, Published, SubscriptionStats, Ttl

T = TypeVar("T")

_AT_ONCE: Final = 256
"""Maximum messages fetched from the loop's thread at once: a switch costs as much as fifty
messages.
"""


_PATIENCE: Final = "Wait longer, or continue with other work. Nothing was lost."

_NO_CONNECTION: Final = (
    "The client keeps trying, and sends what you publish meanwhile when it is connected. "
    "`hanzo-pubsub doctor` finds the cause."
)


_END: Final = object()
"""Marks the end of an iterator across threads, where StopIteration cannot be used."""


def iterate(
    source: AsyncIterator[T], call: Callable[..., Any], *, ends_with_client: bool = False
) -> Iterator[T]:
    """Iterate over an async iterator; an error does not end the iteration.

    Args:
        source: The async iterator.
        call: Runs a coroutine function in the event loop of the client.
        ends_with_client: Whether the iteration ends when the client is closed, after the items that
            have already arrived; otherwise, it raises ``ClosedError``.
    """

    def following() -> Any:
        try:
            return call(lambda: anext(source, _END))
        except ClosedError:
            if not ends_with_client:
                raise
            return _without_loop(source)

    return iter(following, _END)


def _without_loop(source: AsyncIterator[Any]) -> Any:
    """The next item of a closed client, whose loop has ended; the end if it would have to wait."""
    following = anext(source, _END)
    try:
        following.send(None)
    except StopIteration as done:
        return done.value
    except RuntimeError:  # no running event loop
        return _END
    following.close()
    return _END


def parsed(events: Iterator[Event], model: PayloadModel[T]) -> Iterator[Event[T]]:
    """Parse the messages among events with a model; an error does not end the iteration."""

    def following() -> Event[T]:
        while True:
            event = next(events)
            if not isinstance(event, Message):
                return event
            read = model.read(event)
            if read is not None:
                return read

    return iter(following, _END)


class BlockingSubscription(Generic[Data_co]):
    """Messages of one or more topics: a blocking iterator and a context manager.

    Several threads may read one subscription; each message goes to one of them.
    """

    def __init__(self, subscription: Subscription, call: Callable[..., Any]) -> None:
        self._subscription = subscription
        self._call = call
        self._waiting: deque[Message] = deque()
        self._lock = threading.Lock()
        self._model: PayloadModel[Any] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The requested patterns."""
        return self._subscription.topics

    @property
    def denied(self) -> tuple[Denial, ...]:
        """The patterns that the server rejected while it granted others."""
        return self._subscription.denied

    @property
    def active(self) -> bool:
        """Whether more messages can arrive."""
        return self._subscription.active

    @property
    def positions(self) -> Mapping[str, int]:
        """Position of the last message that the program has taken, by topic."""
        positions = dict(self._subscription.positions)
        for message in reversed(list(self._waiting)):
            if message.seq is not None:
                positions[message.topic] = message.seq - 1
        return positions

    @property
    def stats(self) -> SubscriptionStats:
        """Counters of received, handled, dropped and waiting messages."""

        async def read() -> SubscriptionStats:
            return self._subscription.stats

        try:
            stats: SubscriptionStats = self._call(read)
        except (ClosedError, UsageError):
            # The loop has ended or this is its thread, so no other thread adds messages.
            stats = self._subscription.stats
        return stats

    def wait(self) -> Self:
        """Wait until the server has answered.

        Raises:
            PermissionDenied: No topic was granted.
            OperationTimeout: No answer arrived in time.
        """

        async def joined() -> None:
            await self._subscription

        self._call(joined)
        return self

    def next(self, timeout: Duration | None = None) -> Message[Data_co]:
        """Wait for a message.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived in time. Without a connection, the text says since
                when and why.
            ClosedError: The subscription has ended.
        """
        message = self._next(seconds_of(timeout))
        if message is None:
            raise ClosedError(
                "The subscription has ended.", remedy="Subscribe again.", topic=self.topics[0]
            )
        return message

    def messages(self, timeout: Duration | None = None) -> Iterator[Message[Data_co]]:
        """Messages until none has come for ``timeout`` seconds, or the subscription has ended."""
        seconds = seconds_of(timeout)
        while True:
            try:
                message = self._next(seconds)
            except OperationTimeout:
                return
            if message is None:
                return
            yield message

    def events(self) -> Iterator[Event[Data_co]]:
        """Iterate over messages, gaps and, if requested, presence changes, in one order."""
        events: Iterator[Event] = iterate(
            self._subscription.events(), self._call, ends_with_client=True
        )
        return events if self._model is None else parsed(events, self._model)

    def unsubscribe(self) -> None:
        """End the subscription, and drop the waiting messages."""
        self._waiting.clear()
        self._call(self._subscription.unsubscribe)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[Data_co]:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def __enter__(self) -> Self:
        return self.wait()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ClosedError, ForkedError):
            self.unsubscribe()

    def __repr__(self) -> str:
        return repr(self._subscription).replace("<Subscription", "<BlockingSubscription")

    # ------------------------------------------------------------ inside

    def typed(self, model: PayloadModel[T]) -> BlockingSubscription[T]:
        """Return this subscription, whose messages from now on are parsed with the model."""
        self._model = model
        return cast("BlockingSubscription[T]", self)

    def _next(self, timeout: float | None) -> Message[Data_co] | None:
        while True:
            message = None
            with contextlib.suppress(IndexError):
                message = self._waiting.popleft()
            if message is not None:
                read = message if self._model is None else self._model.read(message)
                if read is not None:
                    return read
            elif not self._more(timeout):
                return None

    def _more(self, timeout: float | None) -> bool:
        try:
            filled: bool = self._call(lambda: self._fill(timeout))
        except ClosedError:
            with self._lock:
                item = _without_loop(self._subscription)
            if item is _END:
                return False
            self._waiting.append(item)
            return True
        return filled

    async def _fill(self, timeout: float | None) -> bool:
        """Move waiting entries to where threads can take them; a cancelled wait loses nothing."""
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
            outage = self._subscription.outage()
            raise OperationTimeout(
                f"No message arrived within {timeout:g} s." + (f" {outage}" if outage else ""),
                topic=self.topics[0],
                remedy=_PATIENCE if outage is None else _NO_CONNECTION,
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
        """One result per message, in the order of the calls, after the block has ended."""
        return self._batch.results

    def __len__(self) -> int:
        return len(self._batch)

    def __repr__(self) -> str:
        return repr(self._batch).replace("<Batch", "<BlockingBatch")

    def publish(
        self, topic: str, message: Outgoing, *, ttl: Ttl | None = None, id: str | None = None
    ) -> str:
        """Add a message and return its id; see ``Batch.publish``."""
        return self._batch.publish(topic, message, ttl=ttl, id=id)

    def __enter__(self) -> Self:
        self._call(self._batch.__aenter__)
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Send everything; after an exception in the block, nothing.

        Raises:
            PubSubError: The first error among the results.
        """
        try:
            self._call(lambda: self._batch.__aexit__(exc_type))
        except ForkedError:
            if exc_type is None:
                raise
