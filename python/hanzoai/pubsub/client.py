"""`PubSubClient`: the asyncio client.

The modules that run a connection, and pydantic, are imported at the first use: they take two thirds
of the import time, which a program without a connection saves.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

from hanzoai.pubsub.errors import ClosedError
from hanzoai.pubsub.runtime.environment import environment_for, no_loop, refuse_copy, running_loop
from hanzoai.pubsub.settings.checks import check_function, check_instance, check_seconds
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.settings.units import warn_of_milliseconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from pydantic import TypeAdapter

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.request_reply.requester import Requester
    from hanzoai.pubsub.request_reply.responder import Responder
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.operations import Operations
    from hanzoai.pubsub.runtime.publisher import Batch, Prepared
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.settings.options import ReceiveQueue, SendQueue, Settings, TransportChoice
    from hanzoai.pubsub.topic import TopicHandle
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


class PubSubClient:
    """The asyncio client of Hanzo PubSub (HIP-56, Client SDK). For a blocking client, use `PubSub`.

    Creating a client does no I/O and needs no running event loop. The client connects at its first
    use or at ``connect()``, and then belongs to the event loop of that call. It reconnects until
    you close it or an error is permanent.

    Args:
        url: WebSocket URL (``wss://host:8057/ws``); default: the environment variable
            ``HANZO_PUBSUB_URL``.
        token: Bearer token or API key, with or without ``Bearer ``, or a ``Token``; default:
            ``HANZO_PUBSUB_TOKEN``. The client cannot renew it: after the server has rejected it as
            expired, calls raise ``TokenExpired``.
        get_token: Callback that returns a token, instead of ``token``. The client calls it before
            it connects, and before the token expires. It is a function (run in a thread) or a
            coroutine function, takes a ``TokenContext``, and returns a string or a ``Token``. If it
            raises ``AuthRefused``, the client stops permanently; after any other exception, the
            client calls it again.
        transport: ``auto`` (default) starts with a WebSocket and falls back to server-sent events
            (SSE); ``websocket`` and ``sse`` use only the one.
        rest_url: Base URL of the HTTP API; default: derived from ``url`` (port 8057 becomes 8056).
        allow_insecure: Whether the client may send the token over ``ws://`` or ``http://`` to other
            machines.
        name: Name of the program, which the client sends to the server; at most 128 characters.
        echo: Whether subscriptions receive the messages that this client publishes; default True.
        on_state: Called with every ``StateChange``, in order; a function or a coroutine function.
        on_error: Called with every error that no call can raise, for example an exception in a
            handler. Without it, the client logs these errors at ERROR.
        send_queue: Bounds of the messages that wait to be sent, and what happens when the queue is
            full.
        tracing: Creates OpenTelemetry spans for publishes and handlers, and passes their context in
            ``meta``; see ``hanzoai.pubsub.tracing``.
        **settings: Durations (seconds or a timedelta) and limits by name;
            ``hanzoai.pubsub.ClientOptions`` lists all.

    Raises:
        InvalidOption: An option has a wrong type or is out of range; the error names it.
        InsecureUrl: The client would send the token over an unencrypted connection.
    """

    _warns = True
    """Whether to warn about a client or a subscription that is dropped while it is open."""

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
        check_function("on_state", on_state)
        check_function("on_error", on_error)
        if tracing is not None:
            _check_tracing(tracing)
        self._environment = environment_for(url)
        from_url, from_rest_url = self._environment.urls(url, rest_url)
        self._options = read_options(
            from_url,
            token,
            get_token=get_token,
            transport=transport,
            rest_url=from_rest_url,
            allow_insecure=allow_insecure,
            name=name,
            echo=echo,
            send_queue=send_queue,
            settings=settings,
        )
        if self._environment.peer is None:  # in virtual time, long times are common
            warn_of_milliseconds(settings)
        self._on_state = on_state
        self._on_error = on_error
        self._tracing = tracing
        self._operations: Operations | None = None
        self._requester: Requester | None = None
        self._closed = False

    @property
    def state(self) -> StateName:
        """The current state."""
        if self._operations is not None:
            return self._operations.driver.failures.state
        return "closed" if self._closed else "initialized"

    @property
    def last_failure(self) -> StateChange | None:
        """Why the last connection or attempt ended; None while the client is connected.

        For a failed client, the reason of the failure.
        """
        return None if self._operations is None else self._operations.driver.failures.last

    @property
    def client_id(self) -> str | None:
        """The id that the server assigned to this client; None before the first connection.

        It is the ``client_id`` in presence, on WebSockets and on event streams.
        A client that reconnects keeps its id, unless the server has lost its data.
        """
        peer = None if self._operations is None else self._operations.driver.peer
        return None if peer is None else peer.client_id

    @property
    def limits(self) -> Limits | None:
        """What the server allows; None before the first connection.

        Rates, sizes, and the number of messages that the server retains per topic
        (``history_max``).
        """
        peer = None if self._operations is None else self._operations.driver.peer
        return None if peer is None else peer.limits

    @property
    def slowed(self) -> int:
        """Publishes that waited a second or more for the publish rate.

        The first is logged at WARNING.
        """
        return 0 if self._operations is None else self._operations.driver.session.publishes.slowed

    @property
    def transport(self) -> Literal["websocket", "sse"] | None:
        """The current transport; None while the client is not connected.

        ``sse`` means that no WebSocket could be opened; a WARNING in the log states the reason.
        """
        return None if self._operations is None else self._operations.driver.failures.transport

    @property
    def url(self) -> str:
        """The URL of the WebSocket, or ``memory://NAME`` of a server in memory; without a token."""
        return self._environment.url or self._options.socket_url

    @property
    def clock(self) -> Clock:
        """The clock of the client: that of the machine, or one that a test moves."""
        return self._environment.clock

    async def connect(self, timeout: Duration | None = None) -> None:
        """Connect, and wait until the client is connected.

        Call it to connect before the first use, or to get errors early. After the timeout, the
        client keeps trying.

        Args:
            timeout: Seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            ConnectionFailed: The client did not connect in time; the message contains the reason of
                the last failure.
            AuthError: The server rejected the token, or ``get_token`` raised ``AuthRefused``.
            PermissionDenied: The server does not allow this identity to connect.
            ClosedError: The client is closed.
        """
        await self._ready().connect(timeout)

    async def close(self, timeout: Duration | None = None) -> None:
        """Close the client: settle its publishes, close the connection, end the subscriptions.

        You can call it several times, and from handlers. Iterations end after the messages that
        have already arrived. The call waits for running handlers, but not for a handler that makes
        it, or that has started the task or thread that makes it.

        Args:
            timeout: Seconds or a timedelta to wait for unanswered publishes and handlers; default:
                ``close_timeout``. The calls of publishes that are still unanswered then raise an
                error. 0 does not wait.

        Raises:
            InvalidOption: The timeout is negative or not a number.
        """
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, low=0.0)
        operations = self._operations
        if operations is None or operations.driver.owner.is_foreign:
            self._closed = True
            return
        operations.driver.owner.check()
        self._closed = True
        await operations.close(timeout)

    async def disconnect(self) -> None:
        """The same as ``close()``, under its name in the sample of HIP-56."""
        await self.close()

    def states(self) -> AsyncIterator[StateChange]:
        """Iterate over the changes of state from this call on, until the client has ended.

        An iterator that is not read keeps its newest 256 changes.
        """
        return self._ready().driver.listeners.states()

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
    ) -> Subscription:
        """Subscribe to topics or patterns.

        If an event loop is running, the client subscribes at once, otherwise when you first await
        or iterate the subscription; ``on_message`` needs a running loop. Use it with
        ``async for message in sub``, ``async with``, ``await sub`` (waits until the server has
        answered), or with handlers.

        Args:
            topics: One or several patterns: segments joined by dots, ``*`` for one segment, ``**``
                for one or more.
            types: Deliver only messages of these types, for example ``["order.created"]``, at
                most 1,000; default: all. The client filters live and replayed messages, so
                positions, gaps and ``history`` count messages of every type.
            since: Replay messages newer than this: Unix milliseconds, a datetime with a time zone,
                or a timedelta before now.
            history: Replay at most this many of the newest messages per topic, 0 to 10,000. The
                server replays what it retains (``limits.history_max``); if this is less, the client
                logs a warning.
            after: Replay the messages after these positions, by topic: usually ``sub.positions`` of
                an earlier run. ``since`` then applies to the topics without a position, and
                ``history`` to all: it omits older messages without a gap.
            on_message: Called with each message, in order, one at a time; a function or a
                coroutine function.
            on_presence: Called with each presence change. Without ``on_message``, it runs
                concurrently with the iteration.
            on_gap: Called with each gap, at its place between the messages. With ``"raise"``, the
                iteration raises ``MessagesMissed`` at this place; iterate again to continue after
                the gap. If you use neither ``on_gap`` nor ``state_loader`` nor ``events()``, the
                client logs the first gap of each topic at WARNING.
            presence: Whether to request presence; default: True if ``on_presence`` is given.
                Without this handler, changes arrive in ``sub.events()``. A mapping such as
                ``{"status": "typing"}`` also sets what others see of this client on the topics that
                are exact names, as ``update_presence`` does.
            state_loader: Called once for each gap with the gap and the positions before it, to load
                the state again (REC-4). Messages that arrive meanwhile are delivered afterwards.
            queue: Bounds of the messages that wait for your program, and what happens when the
                queue is full.

        Raises:
            InvalidTopic: A pattern is not valid.
            InvalidOption: Another argument is not valid.
            ClosedError: The client is closed.
            UsageError: The client runs in another event loop, or no loop runs and ``on_message`` is
                given.
        """
        if self._closed:
            raise self._ended()
        if on_message is not None and running_loop() is None:
            raise no_loop()  # nothing iterates the subscription, so it might never begin
        if self._tracing is not None and callable(on_message):
            on_message = self._tracing.handler(on_message)
        from hanzoai.pubsub.runtime.subscription import Feed, Subscription

        feed = Feed(
            topics,
            types=types,
            since=since,
            history=history,
            after=after,
            on_message=on_message,
            on_presence=on_presence,
            on_gap=on_gap,
            presence=presence,
            state_loader=state_loader,
            queue=self._options.receive_queue if queue is None else queue,
            now_ms=self._environment.clock.wall_ms(),
            ready=self._ready,
        )
        subscription: Subscription[Any] = Subscription(feed, warns=self._warns)
        if running_loop() is not None:
            feed.begin()
        return subscription

    async def publish(
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
        """Publish one message, and wait until the server has it.

        Concurrent publishes share the connection and keep the order of the calls. Retries use the
        same id, so the server publishes the message once. A message of type ``presence.update``
        updates the presence of this client on the topic.

        Args:
            topic: A topic without wildcards.
            message: ``{"type": ..., "data": ...}``, optionally ``ttl``, ``id``, ``meta``; or a
                ``Publication``. ``data`` may be an object of a pydantic model, a dataclass or a
                msgspec struct. You can also pass such an object as the whole ``message``; it
                becomes the ``data`` of a message of type ``message``.
            ttl: Seconds in history, or a timedelta; 0 stores nothing. Default: the retention of the
                server.
            id: Message id, at most 128 characters; default ``msg_`` and a ULID.
            key: With the policy ``latest``, a newer message with the same key replaces one that is
                not sent yet.
            background: If the publish rate is used up, send it after the other publishes of this
                client, which may overtake it.
            timeout: Seconds or a timedelta; default: ``operation_timeout``. After this time, the
                client never sends the message.
            via: ``auto`` uses the open connection, or HTTP if the connection does not carry
                publishes.

        Raises:
            InvalidTopic: The topic is not valid or has a wildcard.
            InvalidOption: An argument, or a field of the message, is not valid.
            InvalidPayload: The data is not JSON.
            PayloadTooLarge: The data is larger than the limit.
            SchemaError: The server has a contract for the topic, which the payload does not match.
            PermissionDenied: The access rules do not allow it.
            QueueFull: Too many messages wait to be sent (policy ``error``), or the message was
                dropped (``drop_oldest``).
            Superseded: A newer message with the same key replaced it (``latest``).
            OperationTimeout: Not settled in time. ``outcome_unknown`` is true if it may have been
                published. Publish again with the same ``id`` to avoid a duplicate.
            ClosedError: The client is closed.
        """
        operations = self._operations
        if operations is None or self._closed or running_loop() is not operations.driver.loop:
            operations = self._ready()
        publish = operations.publisher.publish
        if self._tracing is None:
            return await publish(topic, message, ttl, id, key, background, timeout, via)
        with self._tracing.publishing(topic, message) as traced:
            return await publish(topic, traced, ttl, id, key, background, timeout, via)

    async def publish_many(
        self,
        messages: Sequence[tuple[str, Outgoing] | Mapping[str, Any]],
        *,
        timeout: Duration | None = None,
        via: Via = "auto",
    ) -> list[Published | PubSubError]:
        """Publish several messages in one request, in order.

        Args:
            messages: ``(topic, message)`` pairs, or mappings with a ``topic``. The client splits a
                batch that exceeds the limit of the server.
            timeout: Seconds or a timedelta for all messages; default: ``operation_timeout``.
            via: As in ``publish``.

        Returns:
            One result per message, in the same order: a ``Published``, or the error.

        Raises:
            InvalidTopic: A topic is not valid; nothing was sent. As in the errors below, ``field``
                begins with the number of the item, such as ``[3].topic``.
            InvalidOption: ``messages`` is not a list, or an argument or a field of a message is not
                valid; nothing was sent.
            InvalidPayload: A payload is not JSON; nothing was sent.
            PayloadTooLarge: A payload is larger than the limit; nothing was sent.
        """
        from hanzoai.pubsub.runtime.publisher import check_list

        tracing = self._tracing
        check_list(messages)
        with (
            nullcontext(messages) if tracing is None else tracing.publishing_many(messages) as sent
        ):
            publisher = self._ready().publisher
            prepared = publisher.prepare_items(sent)
            return await publisher.publish_many(prepared, timeout=timeout, via=via)

    def batch(self, *, timeout: Duration | None = None, via: Via = "auto") -> Batch:
        """Collect publishes and send them together.

        ``async with ps.batch() as b: b.publish(topic, message)``; at the end, ``b.results`` has one
        result per message, and the block raises the first error among them.
        """
        from hanzoai.pubsub.runtime.publisher import Batch

        publisher, tracing = self._ready().publisher, self._tracing
        outer = None if tracing is None else tracing.current()

        def prepare(topic: str, message: Outgoing, ttl: Ttl | None, id: str | None) -> Prepared:
            if tracing is not None and tracing.current() is not outer:
                # A span inside the block is the parent of what is published in it.
                message = tracing.injected(message)
            return publisher.prepare(topic, message, ttl, id)

        async def send(items: Sequence[Prepared]) -> list[Published | PubSubError]:
            if tracing is None:
                return await publisher.publish_many(items, timeout=timeout, via=via)
            with tracing.publishing_many([item.publication for item in items]) as traced:
                prepared = publisher.prepare_items(traced)
                return await publisher.publish_many(prepared, timeout=timeout, via=via)

        return Batch(prepare, send)

    async def request(
        self,
        topic: str,
        data: Any,
        *,
        type: str = "request",
        timeout: Duration | None = None,
        id: str | None = None,
        reply_to: str | None = None,
    ) -> Message:
        """Publish a request, and wait for the reply of a responder (see ``respond``).

        The client subscribes once to each reply topic, and stays subscribed to the last 100.
        History retains the request and the reply for the timeout, so neither is lost if a side
        reconnects.

        Args:
            topic: A topic without wildcards.
            data: JSON of the request.
            type: Message type of the request.
            timeout: Seconds or a timedelta to wait for the reply; default: ``operation_timeout``.
            id: Id of the request, at most 125 characters; default ``msg_`` and a ULID. A retry with
                the same id and reply topic returns a reply that arrived too late for the first
                call.
            reply_to: Topic of the reply; default ``<topic>.replies.<client>``. Everyone who may
                read that topic can see the replies.

        Returns:
            The reply; ``data`` is what the handler returned.

        Raises:
            RequestTimeout: No reply arrived in time: no responder is subscribed, or it is too slow.
            ReplyError: The responder answered with an error; ``code`` is its code.
            PermissionDenied: You may not publish to the topic, or may not read the reply topic.
            InvalidTopic: A topic is not valid or has a wildcard.
            InvalidOption: ``id`` is in use or too long.
        """
        ready = self._ready()
        if self._requester is None:
            from hanzoai.pubsub.request_reply.requester import Requester

            self._requester = Requester(self)
        return await self._requester.request(
            topic,
            data,
            type=type,
            id=id,
            reply_to=reply_to,
            timeout=ready.driver.timeout_of(timeout),
        )

    def respond(
        self,
        topics: Topics,
        handler: Callable[[Message], Awaitable[Any] | Any],
        *,
        type: str = "request",
        concurrency: int = 10,
        allow: Callable[[Message, str], bool] | None = None,
    ) -> Responder:
        """Answer requests on topics with the return values of a handler.

        Use it as ``async with``, or ``await`` it and ``close()`` it later. If several responders
        answer one request, the first reply counts. ``request.id`` is the same for each retry of a
        request, so a handler can recognize work that it has already done.

        Args:
            topics: One or several patterns.
            handler: Called with the request as a ``Message``; a function or a coroutine function
                that returns JSON. Raise ``ReplyError`` to answer with an error.
            type: Message type of requests; other messages are ignored.
            concurrency: Requests that are handled at the same time, 1 to 1,000; default 10. More
                requests wait.
            allow: Called with a request and its reply topic; returns whether to reply there. If it
                raises, the responder does not reply. By default, the responder replies only below
                ``<topic>.replies`` of the request, and below ``user.<sender>``.

        Raises:
            InvalidTopic: A pattern is not valid.
            InvalidOption: Another argument is not valid.
        """
        from hanzoai.pubsub.request_reply.responder import Responder

        return Responder(
            self,
            topics,
            handler,
            type=type,
            concurrency=concurrency,
            allow=allow,
            report=self._ready().driver.listeners.report,
            tracing=self._tracing,
        )

    def history(
        self,
        topic: str,
        *,
        since: Since | None = None,
        before: Before | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[Message]:
        """Iterate over the retained messages of one topic, oldest first, across all pages.

        Args:
            topic: A topic without wildcards.
            since: Only messages newer than this time: Unix milliseconds, a datetime with a time
                zone, or a timedelta before now.
            before: Only messages older than this one: a message of the topic, what ``publish``
                returned, a position (``seq``), or an id. What ``publish`` returned must be for a
                message of this topic that history retains. Several senders can use the same id, so
                prefer a message or a position. If no retained message has the id, there are none.
                Not together with ``after``.
            after: Only messages after this position; the client requests further pages during the
                iteration. History reports no gap: where the server no longer retains messages, also
                because it removed them during the iteration, ``seq`` has a hole.
            limit: Maximum number of messages: the newest, or with ``after`` the first.
            timeout: Seconds or a timedelta for each page; default: ``operation_timeout``.

        Raises:
            InvalidTopic: The topic is not valid.
            InvalidOption: An argument is not valid, or two exclude each other.
            PermissionDenied: The access rules do not allow it.
            ConnectionFailed: The HTTP API could not be reached.
            OperationTimeout: The server did not answer in time.
            Unsupported: ``before`` is a position, and the server cannot end a page before one; or
                servers with different positions answer in turn.
        """
        return self._ready().http.history(
            topic, since=since, before=before, after=after, limit=limit, timeout=timeout
        )

    async def presence(
        self, topic: str, *, timeout: Duration | None = None
    ) -> list[PresenceMember]:
        """Return the members of a topic.

        Args:
            topic: A topic without wildcards.
            timeout: Seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            InvalidTopic: The topic is not valid or has a wildcard.
            PermissionDenied: The access rules do not allow it.
            ConnectionFailed: The HTTP API could not be reached.
            OperationTimeout: The server did not answer in time.
        """
        return await self._ready().http.presence(topic, timeout=timeout)

    async def occupancy(self, topic: str, *, timeout: Duration | None = None) -> Occupancy:
        """Return the number of members and of users of one topic, without the list of members.

        ``PresenceChange.occupancy`` has the same counts after each change of presence.

        Args:
            topic: A topic without wildcards.
            timeout: Seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            InvalidTopic: The topic is not valid or has a wildcard.
            PermissionDenied: The access rules do not allow it.
            ConnectionFailed: The HTTP API could not be reached.
            OperationTimeout: The server did not answer in time.
        """
        return await self._ready().http.occupancy(topic, timeout=timeout)

    async def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None = None
    ) -> None:
        """Change what others see of this client, on one topic or on all of its topics.

        A timeout or a cancellation ends only the wait: the client may still send the update. If
        the server rejects it after that, ``on_error`` receives the error.

        Args:
            topic: A topic without wildcards; None for all.
            data: ``status``, ``name``, ``avatar_url`` set fields of the member (at most 64, 256 and
                2,048 characters), other keys are merged into ``metadata`` (at most 16,384 bytes of
                JSON); None deletes a key.
            timeout: Seconds or a timedelta to wait for an answer; default: ``operation_timeout``.

        Raises:
            NotFound: This client is not a member of the topic.
            InvalidTopic: The topic is not valid or has a wildcard.
            InvalidPayload: The data is not a JSON object, or a field has the wrong type.
            PayloadTooLarge: The metadata is too large, on one topic or on all topics together.
            QueueFull: The client has already set presence on 10,000 topics.
            Unsupported: The client uses server-sent events, which cannot update presence.
            OperationTimeout: The server did not answer in time.
        """
        await self._ready().publisher.update_presence(topic, data, timeout=timeout)

    async def topics(
        self,
        prefix: str | None = None,
        *,
        limit: int | None = None,
        timeout: Duration | None = None,
    ) -> list[TopicInfo]:
        """Return the active topics, sorted by name. Requires the token of an administrator.

        Args:
            prefix: Only topics that begin with this text.
            limit: Maximum number of topics, 1 to 1,000; default 100. If you get this many, there
                may be more: raise ``limit``, or list one ``prefix`` after the other.
            timeout: Seconds or a timedelta; default: ``operation_timeout``.

        Raises:
            PermissionDenied: The token is not that of an administrator.
            ConnectionFailed: The HTTP API could not be reached.
            OperationTimeout: The server did not answer in time.
        """
        return await self._ready().http.topics(prefix, limit=limit, timeout=timeout)

    async def positions(
        self,
        topics: Topics,
        *,
        after: Mapping[str, int] | None = None,
        at: Since | None = None,
        wait: Duration = 0,
        timeout: Duration | None = None,
    ) -> PositionList:
        """Return the positions of the oldest and newest messages of topics.

        A topic without a log has ``first`` 1 and ``last`` 0. A pattern returns the topics that have
        a log and that you may read. ``history(topic, after=...)`` reads messages.

        Args:
            topics: A topic or pattern, or several, at most 1,000.
            after: Known positions, by topic; at most 10,000.
            at: Also return the position of each topic at this time.
            wait: Seconds or a timedelta, at most 30 s. The server answers when the ``last`` of a
                topic differs from ``after``, when a topic is not in ``after``, or after this time.
            timeout: Seconds or a timedelta in addition to ``wait``; default: ``operation_timeout``.

        Raises:
            InvalidTopic: A topic or pattern is not valid.
            InvalidOption: ``wait`` is out of range.
            PermissionDenied: The access rules deny a topic, or all topics of a pattern.
            ConnectionLimit: Too many requests of this user are already waiting.
            NotFound: The server supports plain HIP-56 only.
            ConnectionFailed: The HTTP API could not be reached.
        """
        return await self._ready().http.positions(
            topics, after=after, at=at, wait=wait, timeout=timeout
        )

    @overload
    def topic(self, name: str) -> TopicHandle: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        model: type[T] | TypeAdapter[T],
        on_invalid: Literal["raise", "skip"] = "raise",
    ) -> TopicHandle[T]: ...
    @overload
    def topic(
        self, name: str, *, model: type[T] | TypeAdapter[T], on_invalid: Literal["raw"]
    ) -> TopicHandle[T | Any]: ...
    def topic(
        self,
        name: str,
        *,
        model: type[T] | TypeAdapter[T] | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> TopicHandle[Any]:
        """Return a handle for one topic, with the same operations. This sends nothing.

        Args:
            name: The topic. For ``subscribe`` only, it may be a pattern.
            model: Type of the payloads: a pydantic model, dataclass, TypedDict or msgspec struct;
                or a pydantic ``TypeAdapter``, for unions. Messages are ``Message[model]``, and the
                client checks a payload before it publishes it.
            on_invalid: What happens to a received message that does not match. ``raise``: the
                iteration raises ``SchemaError``; iterate again to continue after the message. With
                ``on_message``, the error goes to ``on_error``. ``skip``: the error goes to
                ``on_error``, or to the log, and the next message follows. ``raw``: the client
                delivers the message with its JSON as ``data``.

        Raises:
            InvalidOption: The model does not have a schema, or the policy is unknown.
        """
        from hanzoai.pubsub.topic import TopicHandle

        if model is None:
            return TopicHandle(self, name)
        from hanzoai.pubsub.payload_models import PayloadModel

        return TopicHandle(self, name, PayloadModel(model, on_invalid, self._report))

    async def __aenter__(self) -> Self:
        self._ready()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Settle what was published and close; after an exception close at once."""
        await self.close(None if exc_type is None else 0)

    def __reduce__(self) -> NoReturn:
        refuse_copy(self, "Create a client in each process.")

    def __repr__(self) -> str:
        return f"<PubSubClient {self.url} {self.state}>"

    def __del__(self) -> None:
        operations = getattr(self, "_operations", None)
        if operations is None:
            return
        shown = repr(self)  # with the state before the end
        if operations.abandon() and self._warns:
            warnings.warn(
                f"{shown} was dropped without close(); use `async with`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # ------------------------------------------------------------ inside

    def _ready(self) -> Operations:
        """The operations in the running loop, created at the first use."""
        operations = self._operations
        if operations is None:
            if self._closed:
                raise self._ended()
            if running_loop() is None:
                raise no_loop()
            from hanzoai.pubsub.runtime.driver import Driver
            from hanzoai.pubsub.runtime.operations import Operations

            driver = Driver(self._options, self._environment, self._on_state, self._on_error)
            operations = self._operations = Operations(driver)
        else:
            operations.driver.owner.check()
        if self._closed:
            raise self._ended()
        return operations

    def _report(self, error: Exception, topic: str | None) -> None:
        """Pass an error that no call can raise to ``on_error``, or log it."""
        self._ready().driver.listeners.report(error, topic)

    def _ended(self) -> PubSubError:
        failed = None if self._operations is None else self._operations.driver.error
        return failed or ClosedError()


def _check_tracing(tracing: object) -> None:
    from hanzoai.pubsub.tracing import Tracing

    check_instance("tracing", tracing, Tracing, "Pass hanzoai.pubsub.tracing.Tracing().")
