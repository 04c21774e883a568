"""One WebSocket of a signed topic: publishers' frames are verified and sent to all subscribers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.byte_session import FINISH_SECONDS
from pubsub_server.listeners.paced_publishes import AT_ONCE, publish, within_rate
from pubsub_server.listeners.signed.drafts import draft_of
from pubsub_server.listeners.signed.encoders import binary_message
from pubsub_server.listeners.signed.modes import GSOC
from pubsub_server.listeners.signed.stream_codec import split
from pubsub_server.listeners.signed.upstreams import UpstreamError
from pubsub_server.shared.requests import SubscribeRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pubsub_server.auth.identity import Identity
    from pubsub_server.backplane import Published
    from pubsub_server.interfaces import Sink
    from pubsub_server.listeners.signed.addresses import Asked
    from pubsub_server.listeners.signed.modes import Parameters
    from pubsub_server.listeners.signed.relays import Relay, Relays
    from pubsub_server.service import Service
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import Draft


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
        # When it gives up what it has received, after its client has closed.
        self._finish_by: float | None = None

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
        if parameters is None or self.closing:
            return
        try:
            frames = split(data)
        except FrameError as error:
            self._refuse(error.reason, str(error))
            return
        self._frames.extend(frames)
        if not self._working:
            work = self._publish(parameters)
            if work is not None:
                self._working = True
                self._endpoint.spawn(self._finish(work, parameters))
        if self._working:
            # Again for each message: the hub lets it read when a slow subscription is answered.
            self._sink.hold(True)

    def gone(self) -> None:
        """See `endpoints.Receiver`. What the client has sent before it closed is published."""
        if self._finish_by is not None:
            return
        service = self._endpoint.service
        self._finish_by = service.clock() + FINISH_SECONDS
        if self._relay is not None:
            self._relay.discard(self)
        self._endpoint.left(self)
        if not self.connection.closed:
            service.mute(self.connection)
        if not self._working:
            self._leave()

    def _leave(self) -> None:
        if self.closing and not self.connection.closed:
            self._endpoint.broke("unfinished")
        relay, self._relay = self._relay, None
        if relay is not None:
            self._endpoint.relays.leave(relay)
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

    @property
    def identity(self) -> Identity:
        """See `paced_publishes.Publisher`."""
        return self._endpoint.identity

    @property
    def closing(self) -> bool:
        """See `paced_publishes.Publisher`."""
        if self.connection.closed:
            return True
        return self._finish_by is not None and self._endpoint.service.clock() >= self._finish_by

    async def nap(self, seconds: float) -> None:
        """See `paced_publishes.Publisher`."""
        await asyncio.sleep(seconds)
        self._stay()

    def _stay(self) -> None:
        """Keep the connection open although its client is silent: the server reads nothing."""
        self._endpoint.service.touch(self.connection)

    def _publish(self, parameters: Parameters) -> Coroutine[Any, Any, None] | None:
        """Publish the received frames, until it must wait."""
        while self._frames and not self.closing:
            if self._relay is not None:
                return self._relay_all(self._relay, parameters)
            some = [self._frames.popleft() for _ in range(min(len(self._frames), AT_ONCE))]
            drafts = [draft_of(self.asked.name, frame, parameters) for frame in some]
            work = publish(self, self._endpoint.service, drafts, self._answered)
            if work is not None:
                return work
        return None

    async def _finish(self, work: Coroutine[Any, Any, None] | None, parameters: Parameters) -> None:
        try:
            while work is not None:
                await work
                work = self._publish(parameters)
        except UpstreamError as error:
            self.cut_off(str(error))
        except Exception:
            self._reject(ServiceError("internal", "the server failed on a message"))
            raise
        finally:
            self._working = False
            if self._finish_by is not None:
                self._leave()
            else:
                self._sink.hold(False)

    def _answered(self, draft: Draft, answer: Published | ServiceError) -> None:
        if isinstance(answer, ServiceError) and not self.connection.closed:
            self._reject(answer)

    async def _relay_all(self, relay: Relay, parameters: Parameters) -> None:
        """Send the frames to the broker. If this node is the broker, the hub verifies them."""
        service = self._endpoint.service
        while self._frames:
            await within_rate(self, service)
            if self.closing:
                return
            frame = self._frames.popleft()
            try:
                GSOC.verify(frame, parameters)
            except ValueError as error:
                message = getattr(error, "message", str(error))
                self._reject(ServiceError("invalid_payload", message))
                return
            service.note("publish", self.connection, self.asked.name)
            await relay.send(frame)
            self._stay()

    def _reject(self, error: ServiceError) -> None:
        """The protocol has no answers: the end of a socket is the only way to report a loss."""
        if error.code == "invalid_payload":
            self._refuse("bad_signature", error.message)
        else:
            self._frames.clear()
            self._endpoint.broke(error.code)
            self._endpoint.service.end(self.connection, error)

    def _refuse(self, reason: str, message: str) -> None:
        """End only this publisher's socket."""
        self._frames.clear()
        self._endpoint.broke(reason)
        service = self._endpoint.service
        service.end(self.connection, ServiceError("invalid_frame", message, field="frame"))
