"""The listener of streams from other nodes, for which this node is the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pubsub_server.errors import ServiceError
from pubsub_server.listeners.byte_connections import ByteConnections
from pubsub_server.listeners.byte_listener import ByteListener
from pubsub_server.listeners.byte_session import ByteSession
from pubsub_server.listeners.paced_publishes import AT_ONCE
from pubsub_server.listeners.signed.addresses import hub_name
from pubsub_server.listeners.signed.drafts import draft_of
from pubsub_server.listeners.signed.encoders import StreamFrames
from pubsub_server.listeners.signed.modes import MODES
from pubsub_server.listeners.signed.stream_codec import BrokerDecoder, Numbering, Opening
from pubsub_server.shared.requests import SubscribeRequest

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Coroutine

    from pubsub_server.auth.identity import Identity
    from pubsub_server.backplane import Published
    from pubsub_server.interfaces import Policy
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.requests import Draft

PING_SECONDS: Final = 30.0
NO_HEADERS: Final = b"\0"
"""The broker's answer to an opening: empty headers."""


class Streams:
    """Streams on one address.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        identity: The identity of the streams.
        ping_seconds: Seconds between two pings of a stream.

    Attributes:
        listener: Accepts them.
        shared: What their connections share.
        frames: Their encoder.
        open: The open streams, by topic.
    """

    def __init__(
        self,
        service: Service,
        policy: Policy,
        settings: Settings,
        identity: Identity,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self.frames = StreamFrames(Numbering(settings.pubsub_wire))
        self.shared = ByteConnections(
            "signed_stream", self.frames, service, policy, settings, identity
        )
        self.listener = ByteListener(self.shared, lambda: StreamSession(self))
        self.open: dict[bytes, dict[StreamSession, None]] = {}
        self._ping_seconds = ping_seconds
        self._ping = bytes((self.frames.numbering.ping,))
        service.wheel.add(self, service.clock() + ping_seconds)

    def due(self, now: float) -> float:
        """See `wheel.Waiting`: send a ping on every stream."""
        for streams in self.open.values():
            for stream in streams:
                stream.ping(self._ping)
        return now + self._ping_seconds


class StreamSession(ByteSession["Opening | bytes"]):
    """One stream: a publisher or a subscriber of one topic.

    Args:
        streams: All streams.
    """

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams.shared, BrokerDecoder())
        self._streams = streams
        self._opening: Opening | None = None
        self._shaken = False

    def handle(self, requests: deque[Opening | bytes]) -> Coroutine[Any, Any, None] | None:
        """See `byte_session.ByteSession`."""
        first = requests.popleft()
        if isinstance(first, Opening):
            self._open(first)
            return None
        frames = [first]
        while requests and len(frames) < AT_ONCE and isinstance(requests[0], bytes):
            frames.append(requests.popleft())  # type: ignore[arg-type]
        opening = self._opening
        assert opening is not None
        assert opening.parameters is not None
        name, parameters = hub_name(opening.topic), opening.parameters
        drafts = [draft_of(name, frame, parameters) for frame in frames]
        return self.publish(drafts, self._answered)

    def left(self) -> None:
        """See `byte_session.ByteSession`."""
        if self._opening is not None:
            streams = self._streams.open.get(self._opening.topic, {})
            streams.pop(self, None)
            if not streams:
                self._streams.open.pop(self._opening.topic, None)

    def overdue(self, now: float) -> str | None:
        """See `byte_session.ByteSession`."""
        return "no_headers" if self._opening is None else None

    def write(self, data: bytes) -> None:
        """See `interfaces.Sink`. The first message of a stream is sent as a handshake."""
        if not data:
            return
        if not self._shaken:
            assert self._opening is not None
            shaken = self._streams.frames.handshake(hub_name(self._opening.topic), data)
            if shaken is None:
                self.break_off("no_handshake")
                return
            self._shaken, data = True, shaken
        super().write(data)

    def ping(self, ping: bytes) -> None:
        """Send a ping, unless other data is being sent."""
        if not self.buffered():
            super().write(ping)

    def _open(self, opening: Opening) -> None:
        reason = self._objection(opening)
        if reason is not None:
            self.break_off(reason)
            return
        self._opening = opening
        if self.lost:
            return
        self._streams.open.setdefault(opening.topic, {})[self] = None
        super().write(NO_HEADERS)
        request = SubscribeRequest((hub_name(opening.topic),), presence=False)
        self._streams.shared.service.subscribe(self.connection, request)

    def _objection(self, opening: Opening) -> str | None:
        shared = self._streams.shared
        settings, name = shared.settings, hub_name(opening.topic)
        mode = MODES.get(opening.mode)
        if mode is None:
            return "unknown_mode"
        if opening.parameters is not None:
            try:
                mode.check(opening.topic, opening.parameters)
            except ValueError:
                return "wrong_owner"
        allowed = shared.policy.may_subscribe(self.identity, name) and (
            not opening.writes or shared.policy.may_publish(self.identity, name)
        )
        if not allowed:
            shared.service.note("subscribe", self.connection, name, "forbidden")
            shared.warn_denied("use", self.identity, name)
            return "forbidden"
        many = len(self._streams.open.get(opening.topic, ()))
        if 0 < settings.pubsub_max_connections <= many:
            return "too_many"
        return None

    def _answered(self, draft: Draft, answer: Published | ServiceError) -> None:
        if isinstance(answer, ServiceError):
            # The protocol has no answers: a closed stream is the only way to report a loss.
            forged = answer.code == "invalid_payload"
            self.break_off("bad_signature" if forged else answer.code)
