"""`PubSub`: the client for programs without asyncio, with the same methods as `PubSubClient`.

The asyncio client does the work, in an event loop in a separate thread (see `portal`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

from hanzoai.pubsub.blocking.portal import Portal
from hanzoai.pubsub.client import PubSubClient
from hanzoai.pubsub.errors import ClosedError, InvalidOption
from hanzoai.pubsub.runtime.environment import refuse_copy
from hanzoai.pubsub.transports import MEMORY_SCHEME

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Iterator,
        Mapping,
        Sequence,
    )

    from pydantic import TypeAdapter

    from hanzoai.pubsub.blocking.parts import BlockingBatch, BlockingSubscription
    from hanzoai.pubsub.blocking.topic import BlockingTopicHandle
    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.request_reply.blocking import BlockingResponder
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.settings.options import ReceiveQueue, SendQueue, Settings, TransportChoice
    from hanzoai.pubsub.tracing import Tracing
    from hanzoai.pubsub.values import (
        Before,
        Duration,
        Limits,
        Message,
        Occupancy,
        OnInvalid,
        Outgoing,
        PositionList,
        PresenceChange,
        PresenceMember,
        Published,
        Since,
        StateChange,
        StateName,
        Token,
        TokenCallback,
        TopicInfo,
        Topics,
        Ttl,
        Types,
        Via,
    )

T = TypeVar("T")

logger = logging.getLogger("hanzoai.pubsub")

_clients: weakref.WeakSet[PubSub] = weakref.WeakSet()


class PubSub:
    """The blocking client of Hanzo PubSub. Any number of threads may share one.

    It has the arguments and methods of ``PubSubClient``, with plain functions instead of coroutine
    functions, and iterators instead of async iterators. Handlers run in threads, may block, and may
    call the client. Unlike it, this client cannot use a ``MemoryServer``, whose event loop it would
    stop.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | Token | None = None,
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
        tracing: Tracing | None = None,
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
            tracing=tracing,
            **settings,
        )
        if self._client.url.startswith(MEMORY_SCHEME):
            raise InvalidOption(
                "A server in memory runs in an event loop, which a blocking call would stop.",
                remedy="Use `PubSubClient`, or for blocking code a "
                "`hanzoai.pubsub.testing.ThreadedServer`.",
                field="url",
            )
        _clients.add(self)

    @property
    def state(self) -> StateName:
        """The current state."""
        state = self._client.state
        return "closed" if self._ended and state == "initialized" else state

    @property
    def last_failure(self) -> StateChange | None:
        """Why the last connection or attempt ended; see ``PubSubClient.last_failure``."""
        return self._client.last_failure

    @property
    def client_id(self) -> str | None:
        """The id that the server assigned to this client; None before the first connection."""
        return self._client.client_id

    @property
    def limits(self) -> Limits | None:
        """What the server allows; see ``PubSubClient.limits``."""
        return self._client.limits

    @property
    def slowed(self) -> int:
        """Publishes that waited a second or more for the publish rate."""
        return self._client.slowed

    @property
    def transport(self) -> Literal["websocket", "sse"] | None:
        """The current transport; see ``PubSubClient.transport``."""
        return self._client.transport

    @property
    def url(self) -> str:
        """The URL of the WebSocket, or ``memory://NAME`` of a server in memory; without a token."""
        return self._client.url

    @property
    def clock(self) -> Clock:
        """The clock of the client; see ``PubSubClient.clock``."""
        return self._client.clock

    def connect(self, timeout: Duration | None = None) -> None:
        """Connect, and wait until the client is connected; see ``PubSubClient.connect``.

        ``timeout`` is seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            ConnectionFailed: The client did not connect in time.
            AuthError: The server rejected the token, or ``get_token`` raised ``AuthRefused``.
            PermissionDenied: The server does not allow this identity to connect.
            ClosedError: The client is closed.
        """
        self._call(lambda: self._client.connect(timeout))

    def close(self, timeout: Duration | None = None) -> None:
        """Settle what was published and end; see ``PubSubClient.close``.

        It also happens at the end of the program, which then waits up to 5 s for running handlers.
        If a coroutine of the program blocks the client for 5 s, it logs that and does not close.
        In a forked process, it does nothing to a client that the parent process uses.
        """
        portal = self._made
        if portal is not None:
            if portal.is_foreign:
                return
            portal.check()
        with self._lock:
            portal, self._ended = self._made, True
        if portal is None:
            return
        try:
            if portal.is_blocked():
                logger.error(
                    "%r cannot close, because its thread has been blocked for 5 s. Don't block in "
                    "a coroutine that you pass to the client, in `allow`, or in a module that it "
                    "imports.",
                    self,
                )
                return
            portal.call(lambda: self._client.close(timeout))
        except ClosedError:
            return
        portal.stop()

    def disconnect(self) -> None:
        """The same as ``close()``, under its name in the sample of HIP-56."""
        self.close()

    def states(self) -> Iterator[StateChange]:
        """Iterate over the changes of state from this call on, until the client has ended."""
        from hanzoai.pubsub.blocking.parts import iterate

        return iterate(self._make(self._client.states), self._call_made, ends_with_client=True)

    def subscribe(
        self,
        topics: Topics,
        *,
        types: Types | None = None,
        since: Since | None = None,
        history: int | None = None,
        after: Mapping[str, int] | None = None,
        on_message: Handler[Message] | None = None,
        on_presence: Handler[PresenceChange] | None = None,
        on_gap: GapHandler | None = None,
        presence: bool | Mapping[str, Any] | None = None,
        state_loader: StateLoader | None = None,
        queue: ReceiveQueue | None = None,
    ) -> BlockingSubscription:
        """Subscribe to topics or patterns, at once; see ``PubSubClient.subscribe``.

        ``wait()`` of the subscription waits until the server has answered.

        Raises:
            InvalidTopic: A pattern is not valid.
            InvalidOption: Another argument is not valid.
            ClosedError: The client is closed.
        """
        from hanzoai.pubsub.blocking.parts import BlockingSubscription

        subscription = self._make(
            lambda: self._client.subscribe(
                topics,
                types=types,
                since=since,
                history=history,
                after=after,
                on_message=self._threaded(on_message),
                on_presence=self._threaded(on_presence),
                on_gap=on_gap if on_gap == "raise" else self._threaded(on_gap),
                presence=presence,
                state_loader=self._threaded(state_loader),
                queue=queue,
            )
        )
        return BlockingSubscription(subscription, self._call_made)

    def publish(
        self,
        topic: str,
        message: Outgoing,
        *,
        ttl: Ttl | None = None,
        id: str | None = None,
        key: str | None = None,
        background: bool = False,
        timeout: Duration | None = None,
        via: Via = "auto",
    ) -> Published:
        """Publish one message, and wait until the server has it; see ``PubSubClient.publish``.

        ``timeout`` is seconds or a timedelta; default: ``operation_timeout``. ``ttl`` is seconds
        in history, or a timedelta; 0 stores nothing.

        Raises:
            InvalidTopic: The topic is not valid or has a wildcard.
            InvalidPayload: The data is not JSON.
            PayloadTooLarge: The data is larger than the limit.
            PermissionDenied: The access rules do not allow it.
            QueueFull: Too many messages wait to be sent.
            OperationTimeout: Not settled in time; ``outcome_unknown`` is true if it may have been
                published.
            ClosedError: The client is closed.
        """
        return self._call(
            lambda: self._client.publish(
                topic,
                message,
                ttl=ttl,
                id=id,
                key=key,
                background=background,
                timeout=timeout,
                via=via,
            )
        )

    def publish_many(
        self,
        messages: Sequence[tuple[str, Outgoing] | Mapping[str, Any]],
        *,
        timeout: Duration | None = None,
        via: Via = "auto",
    ) -> list[Published | PubSubError]:
        """Publish several messages in one request, in order; see ``PubSubClient.publish_many``."""
        return self._call(lambda: self._client.publish_many(messages, timeout=timeout, via=via))

    def batch(self, *, timeout: Duration | None = None, via: Via = "auto") -> BlockingBatch:
        """Collect publishes and send them together: ``with ps.batch() as b: b.publish(...)``."""
        from hanzoai.pubsub.blocking.parts import BlockingBatch

        batch = self._make(lambda: self._client.batch(timeout=timeout, via=via))
        return BlockingBatch(batch, self._call)

    def request(
        self,
        topic: str,
        data: Any,
        *,
        type: str = "request",
        timeout: Duration | None = None,
        id: str | None = None,
        reply_to: str | None = None,
    ) -> Message:
        """Publish a request, and wait for its reply; see ``PubSubClient.request``.

        ``timeout`` is seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            RequestTimeout: No reply arrived in time.
            ReplyError: The responder answered with an error; ``code`` is its code.
            PermissionDenied: You may not publish to the topic, or may not read the reply topic.
        """
        return self._call(
            lambda: self._client.request(
                topic, data, type=type, timeout=timeout, id=id, reply_to=reply_to
            )
        )

    def respond(
        self,
        topics: Topics,
        handler: Callable[[Message], Awaitable[Any] | Any],
        *,
        type: str = "request",
        concurrency: int = 10,
        allow: Callable[[Message, str], bool] | None = None,
    ) -> BlockingResponder:
        """Answer the requests of topics; see ``PubSubClient.respond``.

        ``allow`` runs in the thread of the client: it must not block.
        """
        from hanzoai.pubsub.request_reply.blocking import BlockingResponder

        run = self._threaded(handler)
        responder = self._make(
            lambda: self._client.respond(
                topics, run, type=type, concurrency=concurrency, allow=allow
            )
        )
        return BlockingResponder(responder, self._call)

    def history(
        self,
        topic: str,
        *,
        since: Since | None = None,
        before: Before | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[Message]:
        """Iterate over the retained messages of one topic; see ``PubSubClient.history``.

        ``timeout`` is seconds or a timedelta for each page; default: ``operation_timeout``.

        Raises:
            PermissionDenied: The access rules do not allow it.
            ConnectionFailed: The HTTP API could not be reached.
            OperationTimeout: The server did not answer in time.
        """
        from hanzoai.pubsub.blocking.parts import iterate

        messages = self._make(
            lambda: self._client.history(
                topic, since=since, before=before, after=after, limit=limit, timeout=timeout
            )
        )
        return iterate(messages, self._call)

    def presence(self, topic: str, *, timeout: Duration | None = None) -> list[PresenceMember]:
        """Return the members of a topic."""
        return self._call(lambda: self._client.presence(topic, timeout=timeout))

    def occupancy(self, topic: str, *, timeout: Duration | None = None) -> Occupancy:
        """Return the number of members of one topic; see ``PubSubClient.occupancy``."""
        return self._call(lambda: self._client.occupancy(topic, timeout=timeout))

    def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None = None
    ) -> None:
        """Change how this client appears; see ``PubSubClient.update_presence``."""
        self._call(lambda: self._client.update_presence(topic, data, timeout=timeout))

    def topics(
        self,
        prefix: str | None = None,
        *,
        limit: int | None = None,
        timeout: Duration | None = None,
    ) -> list[TopicInfo]:
        """Return the active topics, sorted by name; see ``PubSubClient.topics``."""
        return self._call(lambda: self._client.topics(prefix, limit=limit, timeout=timeout))

    def positions(
        self,
        topics: Topics,
        *,
        after: Mapping[str, int] | None = None,
        at: Since | None = None,
        wait: Duration = 0,
        timeout: Duration | None = None,
    ) -> PositionList:
        """Return the positions of topics; see ``PubSubClient.positions``."""
        return self._call(
            lambda: self._client.positions(topics, after=after, at=at, wait=wait, timeout=timeout)
        )

    @overload
    def topic(self, name: str) -> BlockingTopicHandle: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        model: type[T] | TypeAdapter[T],
        on_invalid: Literal["raise", "skip"] = "raise",
    ) -> BlockingTopicHandle[T]: ...
    @overload
    def topic(
        self, name: str, *, model: type[T] | TypeAdapter[T], on_invalid: Literal["raw"]
    ) -> BlockingTopicHandle[T | Any]: ...
    def topic(
        self,
        name: str,
        *,
        model: type[T] | TypeAdapter[T] | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> BlockingTopicHandle[Any]:
        """Return a handle for one topic; see ``PubSubClient.topic``."""
        from hanzoai.pubsub.blocking.topic import BlockingTopicHandle

        if model is None:
            return BlockingTopicHandle(self, name)
        # Loaded only for models.
        from hanzoai.pubsub.payload_models import PayloadModel

        return BlockingTopicHandle(self, name, PayloadModel(model, on_invalid, self._report))

    def __enter__(self) -> Self:
        self._portal()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Settle what was published and close; after an exception close at once."""
        self.close(None if exc_type is None else 0)

    def __reduce__(self) -> NoReturn:
        refuse_copy(self, "Create a client in each process; threads may share one.")

    def __repr__(self) -> str:
        return f"<PubSub {self.url} {self.state}>"

    def __del__(self) -> None:
        # Runs in any thread, also in that of the client, so it does not wait.
        portal = getattr(self, "_made", None)
        if portal is None or self._ended or portal.is_foreign:
            return
        shown = repr(self)  # with the state before the end
        portal.stop_after(functools.partial(self._client.close, 0))
        warnings.warn(
            f"{shown} was dropped without close(); use `with`",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    # ------------------------------------------------------------ inside

    def _portal(self) -> Portal:
        with self._lock:
            if self._ended:
                raise ClosedError
            portal = self._made
            if portal is None:
                portal = self._made = Portal()
        return portal

    def _renew_lock(self) -> None:
        """The thread that holds the lock may not exist in this process."""
        self._lock = threading.Lock()

    def _report(self, error: Exception, topic: str | None) -> None:
        report = self._client._report  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._make(lambda: report(error, topic))

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal().call(make)

    def _make(self, function: Callable[[], T]) -> T:
        """Call a function in the event loop of the client."""

        async def run() -> T:
            return function()

        return self._call(run)

    def _call_made(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Like ``_call``, but a client that is being closed still accepts it."""
        portal = self._made
        assert portal is not None
        return portal.call(make)

    def _threaded(self, function: Callable[..., Any] | None) -> Any:
        """A handler that runs in a thread; the portal is created at the first use."""
        if not callable(function):
            return function

        # The check of a handler's arguments sees those of the function.
        @functools.wraps(function)
        async def run(*arguments: object) -> Any:
            portal = self._made
            return None if portal is None else await portal.run_handler(function, arguments)

        return run


def inside(
    client: PubSub, make: Callable[[PubSubClient], T]
) -> tuple[T, Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]]:
    """Build an object on the asyncio client behind a blocking client.

    Args:
        client: The blocking client.
        make: Called with the asyncio client.

    Returns:
        The result of ``make``, and a function that runs a coroutine function in the event loop of
        that client and waits for its result.
    """
    return make(client._client), client._call  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def in_thread(client: PubSub, function: Callable[..., Any] | None) -> Any:
    """Return a coroutine function that runs a handler in a thread, where it may call the client.

    The calls run one at a time, in order.
    """
    if not callable(function):
        return function
    run = client._threaded(function)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    turns = asyncio.Lock()

    @functools.wraps(function)
    async def run_in_turn(*arguments: object) -> Any:
        async with turns:
            return await run(*arguments)

    return run_in_turn


def _close_all() -> None:
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the wait
        for client in list(_clients):
            if client._made is not None:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
                with contextlib.suppress(Exception):
                    # An interrupted close has waited.
                    client.close(0 if client._ended else None)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def _renew_locks() -> None:
    for client in list(_clients):
        client._renew_lock()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
