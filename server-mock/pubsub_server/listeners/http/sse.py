"""Event streams: `GET` and `POST /v1/subscribe`. The hub writes ready chunks to the transport."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiohttp import web

from pubsub_server.errors import ServiceError
from pubsub_server.listeners.http import requests
from pubsub_server.listeners.http.encoder import StreamEncoder
from pubsub_server.settings import documents
from pubsub_server.shared import codec
from pubsub_server.shared.denials import denial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.access.policy import Policy
    from pubsub_server.interfaces import Caller, Identity
    from pubsub_server.listeners.http.connection import HttpConnection
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.requests import SubscribeRequest

HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
GREETING: Final = b": welcome\n\n"
MAX_SUBSCRIPTIONS: Final = 1_000
MAX_TOPICS: Final = 10_000
"""Maximum topics and patterns in a request; more, if a connection may have more."""
MAX_BODY: Final = 1_048_576

_EVENT_ID: Final = re.compile(
    r"(\d{1,16})(?:-([a-zA-Z0-9._-]{1,255})@(\d{1,16}))?(?:~([0-9a-f]{1,32}))?", re.ASCII
)


class StreamSink:
    """The sink of one event stream: it passes the hub's chunks to the transport.

    Args:
        protocol: The HTTP connection.
        caller: The origin of the request.
    """

    __slots__ = ("_early", "_open", "_protocol", "caller", "ended")

    def __init__(self, protocol: HttpConnection, caller: Caller | None) -> None:
        self._protocol = protocol
        self.caller: Final = caller
        self._open = False
        self._early: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        """Passes chunks to the transport; holds them until the head of the response is sent."""
        if self.ended.done():
            return
        if not self._open:
            self._early.append(data)
            return
        transport = self._protocol.transport
        if transport is not None:
            transport.write(data)

    def buffered(self) -> int:
        """Bytes that the transport still holds."""
        transport = self._protocol.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """Ends the stream after sending the written bytes."""
        self.end()

    def hold(self, on: bool) -> None:
        """Does nothing: an event stream has no further input."""

    def abort(self) -> None:
        """Cuts the connection."""
        transport = self._protocol.transport
        if transport is not None:
            transport.abort()
        self.end()

    def start(self) -> None:
        """The head of the response is sent: chunks may follow."""
        self._open = True
        early, self._early = self._early, []
        if early:
            self.write(b"".join(early))

    def end(self) -> None:
        """Lets the handler of the request end."""
        if not self.ended.done():
            self.ended.set_result(None)


class EventStreams:
    """Handlers of `/v1/subscribe`.

    Args:
        service: The hub.
        policy: The access rules: a request without an allowed topic is rejected.
        settings: Limits and deadlines.
    """

    def __init__(self, service: Service, policy: Policy, settings: Settings) -> None:
        self._service = service
        self._encoder = StreamEncoder(service.settled, service.node)
        service.stats.connections.setdefault(self._encoder.name, 0)
        self._policy = policy
        self._settings = settings

    async def get(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/subscribe?topics=…&since=…`: H-060."""
        token = requests.token(request)
        await requests.identify(self._service, request)
        patterns = [
            part.strip()
            for value in request.query.getall("topics", [])
            for part in value.split(",")
        ]
        if not any(patterns):
            raise requests.missing("topics")
        frame: dict[str, object] = {"topics": patterns}
        since = requests.integer(request, "since")
        if since is not None:
            frame["since"] = since
        history = requests.integer(request, "history", 0, 10_000)
        if history is not None:
            frame["history"] = history
        presence = requests.flag(request, "presence")
        return await self._stream(request, token, [_subscription(frame, "", presence)])

    async def post(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/subscribe`: each subscription with its own positions and answer."""
        token = requests.token(request)
        await requests.identify(self._service, request)
        # Not in a variable: it would stay in memory as long as the stream.
        return await self._stream(request, token, *await self._wanted(request))

    async def _wanted(self, request: web.Request) -> tuple[list[SubscribeRequest], str | None]:
        """The subscriptions of a body, and the client that the stream replaces."""
        body = await requests.json_object(
            request, MAX_BODY, self._settings.body_timeout / 1000, self._service.turn
        )
        items = documents.sequence(body.get("subscriptions"))
        if items is None or not 0 < len(items) <= MAX_SUBSCRIPTIONS:
            raise ServiceError(
                "invalid_frame",
                f"`subscriptions` must be a list of 1 to {MAX_SUBSCRIPTIONS} items",
                field="subscriptions",
            )
        presence = body.get("presence", False)
        if not isinstance(presence, bool):
            raise ServiceError("invalid_frame", "`presence` is true or false", field="presence")
        left = most = max(MAX_TOPICS, self._settings.max_subscriptions)
        wanted: list[SubscribeRequest] = []
        for index, item in enumerate(items):
            one = _subscription(item, f"subscriptions.{index}", presence)
            wanted.append(one)
            left -= len(one.topics) + len(one.invalid)
            if left < 0:
                raise ServiceError(
                    "invalid_frame",
                    f"`subscriptions` must have at most {most:,} topics together",
                    field=f"subscriptions.{index}.topics",
                    remedy="Subscribe to a pattern with `*` or `**` instead of many topics.",
                )
        client_id = body.get("client_id")
        if client_id is not None and not (isinstance(client_id, str) and len(client_id) <= 64):
            raise ServiceError(
                "invalid_frame", "`client_id` is a string of up to 64 characters", field="client_id"
            )
        return wanted, client_id

    async def _stream(
        self,
        request: web.Request,
        token: str,
        wanted: list[SubscribeRequest],
        client_id: str | None = None,
    ) -> web.StreamResponse:
        if request.version < (1, 1):
            raise ServiceError(
                "unsupported",
                "event streams need HTTP/1.1, and this request uses HTTP/1.0; in nginx, set"
                " `proxy_http_version 1.1`",
            )
        mark = request.headers.get("Last-Event-ID")
        if mark:
            wanted = _resumed(wanted, mark, self._service.node)
        wanted = [*(replace(each, followed=True) for each in wanted[:-1]), wanted[-1]]
        protocol = requests.connection(request)
        sink = StreamSink(protocol, requests.caller(request))
        connection = self._service.open(sink, self._encoder)
        try:
            await self._service.authenticate(connection, token, client_id=client_id)
            self._check(connection.identity, wanted)
            own = {"Client-Id": connection.client_id}
            response = web.StreamResponse(headers={**HEADERS, **own})
            response.enable_chunked_encoding()
            response.force_close()
            await response.prepare(request)
            await response.write(GREETING)
            protocol.attach(sink.end, self._service, connection)
            sink.start()
            # The stream outlives them.
            while wanted:
                self._service.subscribe(connection, wanted.pop(0))
            await sink.ended
            protocol.expect_end(self._settings.drain_timeout / 1000)
            return response
        finally:
            protocol.detach()
            sink.end()
            self._service.closed(connection, None)

    def _check(self, identity: Identity | None, wanted: Sequence[SubscribeRequest]) -> None:
        """Rejects a request without an allowed topic: its stream would stay empty."""
        patterns = [pattern for subscription in wanted for pattern in subscription.topics]
        if not patterns:
            raise next(error for subscription in wanted for error in subscription.invalid)
        may = self._policy.may_subscribe_pattern
        if identity is not None and not any(may(identity, pattern) for pattern in patterns):
            message = "the access rules do not allow reading any of these topics"
            raise denial(self._settings, message, patterns[0], field="topics")


def _subscription(item: object, field: str, presence: bool | None) -> SubscribeRequest:
    fields = documents.mapping(item)
    if fields is None:
        raise ServiceError("invalid_frame", f"`{field}` must be an object", field=field)
    try:
        return codec.decode_subscription({**fields, "presence": presence})
    except ServiceError as error:
        where = ".".join(part for part in (field, error.field) if part)
        raise ServiceError(error.code, error.message, topic=error.topic, field=where) from None


def _resumed(
    wanted: Sequence[SubscribeRequest], mark: str, node: str | None
) -> list[SubscribeRequest]:
    """The subscriptions resumed after `Last-Event-ID`: `<timestamp>-<topic>@<seq>~<node>`.

    That topic resumes after `seq`, the others after `timestamp - 1`; a later position in the
    request takes precedence. Without a topic (`<timestamp>`), all topics resume after the
    timestamp. If the positions are from another node, all topics resume by time. An id in another
    format is ignored.

    Args:
        wanted: The subscriptions of the request.
        mark: The header.
        node: The node whose positions are valid here.
    """
    match = _EVENT_ID.fullmatch(mark)
    if match is None:
        return list(wanted)
    topic: str | None = match[2]
    timestamp = int(match[1]) - (topic is not None)
    moved = match[4] != node
    resumed: list[SubscribeRequest] = []
    for one in wanted:
        after = {} if moved else dict(one.after or {})
        if topic is not None and not moved:
            after[topic] = max(int(match[3]), after.get(topic, 0))
        since = max(timestamp, one.since or 0, 0)
        resumed.append(
            replace(one, since=since, after=after, history=None, resumed=timestamp, moved=moved)
        )
    return resumed
