"""One WebSocket of a signed topic: publishers' frames are verified and sent to all subscribers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.signed.drafts import draft_of
from pubsub_server.listeners.signed.encoders import binary_message
from pubsub_server.listeners.signed.modes import GSOC
from pubsub_server.listeners.signed.stream_codec import split
from pubsub_server.listeners.signed.upstreams import UpstreamError
from pubsub_server.shared.requests import SubscribeRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Sink
    from pubsub_server.listeners.signed.addresses import Asked
    from pubsub_server.listeners.signed.modes import Parameters
    from pubsub_server.listeners.signed.relays import Relay, Relays
    from pubsub_server.service import Service
    from pubsub_server.shared.connection import Connection


class Endpoint(Protocol):
    """The endpoint of the sessions; see `endpoint.SignedEndpoint`."""

    service: Service
    identity: Identity
    relays: Relays

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Run a task until the endpoint stops."""
        ...

    def left(self, session: SocketSession) -> None:
        """A session has ended."""
        ...

    def broke(self, reason: str) -> None:
        """Count a connection that the server closes."""
        ...


class SocketSession:
    """See `endpoints.Receiver`.

    Args:
        endpoint: The shared endpoint.
        sink: The WebSocket.
        connection: The hub's connection, which has entered.
        asked: Topic and parameters.
        relay: Source of the messages; None if this node is the broker.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        sink: Sink,
        connection: Connection,
        asked: Asked,
        relay: Relay | None,
    ) -> None:
        self.connection = connection
        self.asked = asked
        self._endpoint = endpoint
        self._sink = sink
        self._relay = relay
        self._frames: deque[bytes] = deque()
        self._working = False
        self._gone = False

    def begin(self) -> None:
        """See `endpoints.Receiver`."""
        if self._relay is None:
            request = SubscribeRequest((self.asked.name,), presence=False)
            self._endpoint.service.subscribe(self.connection, request)
        elif self._relay.ended:
            self.cut_off("the broker has closed the stream")
        else:
            self._relay.add(self)

    def receive(self, data: bytes) -> None:
        """See `endpoints.Receiver`. Data from a subscriber is ignored."""
        parameters = self.asked.parameters
        if parameters is None or self._gone or self.connection.closed:
            return
        try:
            frames = split(data)
        except FrameError as error:
            self._refuse(error.reason, str(error))
            return
        self._frames.extend(frames)
        if not self._working:
            self._working = True
            self._sink.hold(True)
            self._endpoint.spawn(self._publish(parameters))

    def gone(self) -> None:
        """See `endpoints.Receiver`."""
        if self._gone:
            return
        self._gone = True
        self._frames.clear()
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.discard(self)
            self._endpoint.relays.leave(relay)
        self._endpoint.left(self)
        self._endpoint.service.closed(self.connection)

    # ------------------------------------------------------------ relays

    def relayed(self, frame: bytes) -> None:
        """See `relays.Listening`."""
        if not self.connection.closed:
            self._endpoint.service.send(self.connection, binary_message(frame))

    def cut_off(self, reason: str) -> None:
        """See `relays.Listening`."""
        self._endpoint.service.end(self.connection, ServiceError("unavailable", reason))

    # ------------------------------------------------------------ publishing

    async def _publish(self, parameters: Parameters) -> None:
        try:
            while self._frames and not self._gone and not self.connection.closed:
                frame = self._frames.popleft()
                error = await self._publish_one(frame, parameters)
                if error is not None and error.code == "invalid_payload":
                    self._refuse("bad_signature", error.message)
                elif error is not None:
                    self._endpoint.service.end(self.connection, error)
        except UpstreamError as error:
            self.cut_off(str(error))
        finally:
            self._working = False
            if not self._gone:
                self._sink.hold(False)

    async def _publish_one(self, frame: bytes, parameters: Parameters) -> ServiceError | None:
        service = self._endpoint.service
        if self._relay is not None:
            while not self._gone:
                granted, wait = service.budget(self.connection, 1)
                if granted:
                    return await self._relay_one(self._relay, frame, parameters)
                await asyncio.sleep(wait / 1000)
            return None
        draft = draft_of(self.asked.name, frame, parameters)
        identity = self._endpoint.identity
        while not self._gone:
            (answer,) = await service.publish(identity, [draft], connection=self.connection)
            if not isinstance(answer, ServiceError):
                return None
            if answer.code != "rate_limited":
                return answer
            await asyncio.sleep((answer.retry_after_ms or 100) / 1000)
        return None

    async def _relay_one(
        self, relay: Relay, frame: bytes, parameters: Parameters
    ) -> ServiceError | None:
        """Send a frame to the broker. If this node is the broker, the hub verifies it."""
        try:
            GSOC.verify(frame, parameters)
        except ValueError as error:
            return ServiceError("invalid_payload", getattr(error, "message", str(error)))
        self._endpoint.service.note("publish", self.connection, self.asked.name)
        await relay.send(frame)
        return None

    def _refuse(self, reason: str, message: str) -> None:
        """End only this publisher's socket."""
        self._frames.clear()
        self._endpoint.broke(reason)
        service = self._endpoint.service
        service.end(self.connection, ServiceError("invalid_frame", message, field="frame"))
