"""The session: makes all decisions of the SDK, and acts through its ports.

Its parts share a context: `lifecycle` follows the table; `subscriptions`, `publishes` and
`own_presence` keep the program's requests. This class dispatches each call to its part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.generated.lifecycle import TIMERS
from hanzoai.pubsub.generated.wire import ErrorFrame, MessageFrame, PublishedFrame
from hanzoai.pubsub.session.events import (
    NO_DETAILS,
    RATE_LIMITED,
    TIMEOUTS,
    SessionEvent,
    action_of,
    ends_connection,
    event_of,
    rejection,
)
from hanzoai.pubsub.session.lifecycle import Lifecycle
from hanzoai.pubsub.session.own_presence import OwnPresence
from hanzoai.pubsub.session.ports import Context, Rejected, read_peer
from hanzoai.pubsub.session.publishes import Publishes
from hanzoai.pubsub.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hanzoai.pubsub.session.ports import Ports, Publish, Subscribe, TimerName
    from hanzoai.pubsub.settings.session import SessionOptions

_CLOSED: Final = Rejected(code="closed", message="The client is closed.")


class Session:
    """The session of one client, from `connect` to the port `finished`.

    Each call is one step: it changes the session, calls ports, and returns. It never raises for
    data from the network: unexpected data is ignored. `random` returns a number from 0 inclusive to
    1 exclusive, and is called once for each delay.
    """

    def __init__(self, options: SessionOptions, ports: Ports, random: Callable[[], float]) -> None:
        context = self.context = Context(options, ports, random)
        self._ports = ports
        self._timers = context.timers
        self.subscriptions: Final = Subscriptions(context)
        self.messages: Callable[[Sequence[wire.Message]], None] = self.subscriptions.messages
        """Like `receive`, for consecutive live messages: nearly every frame is one."""
        self.publishes: Final = Publishes(context)
        self.own_presence: Final = OwnPresence(context, self.publishes, self.subscriptions.routes)
        self.lifecycle: Final = Lifecycle(
            context, self.subscriptions, self.publishes, self.own_presence
        )

    # ---------------------------------------------------------------- from the program

    def connect(self, *, opened: bool = False) -> None:
        """Connect; `opened`: a WebSocket to this address has worked in this process before."""
        self.lifecycle.choice.has_opened |= opened
        self._called()
        self.lifecycle.fire("connect")

    def close(self, wait: int | None = None) -> None:
        """End after the publishes are settled; `wait`: their milliseconds, if given."""
        self.lifecycle.fire("close", SessionEvent(wait=wait))

    def abort(self) -> None:
        """End now; settle open publishes as unknown or rejected."""
        self.lifecycle.fire("abort")

    def subscribe(self, request: Subscribe) -> None:
        """Add a subscription."""
        if self.lifecycle.draining:
            denied = tuple(
                wire.Denial(topic=topic, code=_CLOSED.code, message=_CLOSED.message)
                for topic in request.topics
            )
            self._ports.joined(request.sub, (), denied)
        else:
            self.subscriptions.subscribe(request)
            self._called()

    def unsubscribe(self, sub: int) -> None:
        """End a subscription."""
        state = self.subscriptions.all.get(sub)
        if state is not None:
            self.subscriptions.unsubscribe(state)
            self.own_presence.drop_topics(state.request.topics)

    def publish(self, request: Publish) -> None:
        """Publish; the port `settle` receives the outcome."""
        if self.lifecycle.draining:
            self._ports.settle(request.ref, _CLOSED)
        else:
            self.publishes.publish(request)
            self._called()

    def expire(self, refs: Collection[int]) -> None:
        """The timeouts of calls have passed. Of these, only updates of presence are still sent."""
        self.publishes.expire(refs)
        self.own_presence.expire(refs)
        self.end_step()

    def update_presence(self, topic: str | None, data: Mapping[str, Any], ref: int) -> None:
        """Change keys of own presence, on a topic or on all (None); `ref` names it in `settle`."""
        if self.lifecycle.draining:
            self._ports.settle(ref, _CLOSED)
        else:
            self.own_presence.update(topic, data, ref)
            self._called()

    # ---------------------------------------------------------------- from the runtime

    def token(self, call: int, token: str, expires_in: int | None = None) -> None:
        """The token callback answered; milliseconds until the token expires, if stated."""
        if self.lifecycle.credentials.end_call(call):
            self.lifecycle.fire("token", SessionEvent(token=token, expires_in=expires_in))

    def token_failed(self, call: int, message: str, *, refused: bool) -> None:
        """The token callback raised; `refused`: another call is useless."""
        code = "auth_refused" if refused else "token_unavailable"
        credentials = self.lifecycle.credentials
        if credentials.end_call(call):
            credentials.failed += 1
            self.lifecycle.fire("token_failed", SessionEvent(code=code, message=message))

    def opened(self, *, incremental: bool) -> None:
        """The transport is open; `incremental`: see `Peer`."""
        self.lifecycle.has_pings = incremental
        self.lifecycle.fire("opened")

    def dropped(self, code: int | None, message: str, retry_after_ms: int | None = None) -> None:
        """The transport was closed, or could not be opened; `code`: for a close or HTTP status."""
        self.lifecycle.is_linked = False
        event = SessionEvent(code=code, message=message, retry_after_ms=retry_after_ms)
        self.lifecycle.fire("dropped", event)

    def probed(self, *, ok: bool) -> None:
        """Whether a WebSocket could be opened in addition to the fallback."""
        self.lifecycle.fire("probed", SessionEvent(ok=ok))

    def answered(self, *, ok: bool) -> None:
        """Whether the HTTP address answered as a PubSub service."""
        self.lifecycle.choice.http_answered(ok=ok)
        self.lifecycle.fire("answered", TIMEOUTS["fallback"])

    def woke(self) -> None:
        """The machine slept, or the network is back."""
        self.lifecycle.doubt_token()
        self.lifecycle.fire("woke")

    def offline(self) -> None:
        """The platform reports that the network is offline; this connection may still work."""
        self.lifecycle.fire("offline")

    def timer_fired(self, name: TimerName, idle: int) -> None:
        """A timer has run out; `idle`: milliseconds since the last byte of the transport."""
        if not self._timers.fired(name):
            return
        lifecycle = self.lifecycle
        event = replace(TIMEOUTS.get(name, NO_DETAILS), timer=name, idle=idle)
        if name == "pace":
            self.publishes.paced()
            self.own_presence.flush()
            self.publishes.flush()
        elif name == "rejoin":
            self.subscriptions.rejoin()
        elif name == "grace":
            self.subscriptions.presence.expire()
        elif name == "hold":
            if lifecycle.attempts.shorten_later:
                lifecycle.fire("called", event)
        else:
            lifecycle.note_late(name)
            lifecycle.fire(TIMERS[name], event)
        self.end_step()

    def receive(self, frame: wire.ServerFrame, at: int) -> None:
        """A frame has arrived at this time, Unix milliseconds by this machine's clock."""
        if type(frame) is MessageFrame:
            self.messages((frame.message,))
        elif type(frame) is PublishedFrame:
            self.published(frame)
        else:
            self._take(frame, at)
            self.end_step()

    def published(self, frame: PublishedFrame) -> None:
        """Like `receive`, for the answer to a publish: most other frames are one."""
        self.publishes.heard()
        if self.context.peer is not None:
            self.lifecycle.note_useful()
            if not self.publishes.published(frame):
                self.own_presence.acknowledged(frame.ref)
        self.end_step()

    # ---------------------------------------------------------------- inside

    def _take(self, frame: wire.ServerFrame, at: int) -> None:
        """Process a frame."""
        lifecycle = self.lifecycle
        self.publishes.heard()
        match frame:
            case wire.AuthOkFrame():
                peer = read_peer(frame, at, incremental=lifecycle.has_pings)
                lifecycle.fire("auth.ok", SessionEvent(peer=peer))
            case wire.AuthExpiringFrame(expires_in=left, expires_at=end):
                if left is None and end is not None:
                    left = end - at
                lifecycle.fire("auth.expiring", SessionEvent(at=at, left=left))
            case wire.PongFrame():
                lifecycle.fire("pong")
            case wire.AuthErrorFrame():
                lifecycle.fire("auth.error", event_of(frame))
            case ErrorFrame():
                if lifecycle.state == "authenticating" and action_of(frame.code) != "retry":
                    lifecycle.fire("auth.error", event_of(frame))
                elif lifecycle.is_linked:
                    self._error(frame)
            case _ if self.context.peer is not None:
                lifecycle.note_useful()
                if isinstance(frame, wire.SubscribedFrame):
                    self.subscriptions.subscribed(frame, at)
                elif isinstance(frame, wire.PresenceSnapshotFrame):
                    self.subscriptions.presence.snapshot(frame)
            case _:
                pass

    def _error(self, frame: ErrorFrame) -> None:
        """The server rejected a request, or sent an error of its own."""
        if ends_connection(frame):
            self.lifecycle.attempts.requested_wait = frame.retry_after_ms or 0
        if self.subscriptions.rejected(frame):
            return
        if frame.code == RATE_LIMITED and self.context.peer is not None:
            self.publishes.pause(frame.retry_after_ms)
        self.publishes.rejected(frame)
        self.own_presence.rejected(frame)
        if not frame.ref:  # otherwise, the call of this request may have ended with a timeout
            self._ports.problem(rejection(frame))

    def _called(self) -> None:
        """The program made a call: end a long wait for the next attempt."""
        attempts = self.lifecycle.attempts
        if attempts.can_shorten:
            attempts.shorten_later = "hold" in self._timers
            if not attempts.shorten_later:
                self.lifecycle.fire("called")

    def end_step(self) -> None:
        """End a session that waits for its publishes and has settled all."""
        if self.lifecycle.draining and not len(self.publishes):
            self.lifecycle.fire("drained")
