"""The session: makes all decisions of the SDK, and acts through its ports.

Its parts share a context: `lifecycle` follows the table; `subscriptions`, `publishes` and
`own_presence` keep the user's requests. This class dispatches each call to its part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.generated.lifecycle import FINAL
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthOkFrame,
    ErrorFrame,
    MessageFrame,
    PublishedFrame,
)
from hanzoai.pubsub.session.causes import action_of, ends_connection
from hanzoai.pubsub.session.context import Context
from hanzoai.pubsub.session.events import (
    Answered,
    Dropped,
    Event,
    Probed,
    Received,
    TimerFired,
    Token,
    TokenFailed,
)
from hanzoai.pubsub.session.lifecycle import Lifecycle
from hanzoai.pubsub.session.own_presence import OwnPresence
from hanzoai.pubsub.session.ports import Rejected
from hanzoai.pubsub.session.publishes import Publishes
from hanzoai.pubsub.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hanzoai.pubsub.generated.lifecycle import State
    from hanzoai.pubsub.session.events import Publish, Subscribe, TimerName
    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.session.ports import Ports
    from hanzoai.pubsub.settings.session import SessionOptions

_CLOSED: Final = Rejected("closed", "The client is closed.")


class Session:
    """The session of one client, from `connect` to the port `finished`.

    Each call is one step: it changes the session, calls ports, and returns. It never raises for
    data from the network: unexpected data is ignored.

    Args:
        options: Its options.
        ports: Its environment.
        random: A number from 0 inclusive to 1 exclusive, drawn once for each delay.
    """

    def __init__(self, options: SessionOptions, ports: Ports, random: Callable[[], float]) -> None:
        context = self._context = Context(options, ports, random)
        self._ports = ports
        self._timers = context.timers
        self.subscriptions: Final = Subscriptions(context)
        self.messages: Callable[[Sequence[wire.Envelope]], None] = self.subscriptions.messages
        """Like `receive`, for consecutive live messages: nearly every frame is one."""
        self.publishes: Final = Publishes(context)
        self.own_presence: Final = OwnPresence(context, self.publishes)
        self.lifecycle: Final = Lifecycle(
            context, self.subscriptions, self.publishes, self.own_presence
        )

    # ---------------------------------------------------------------- queries

    @property
    def state(self) -> State:
        """The state in the lifecycle table."""
        return self.lifecycle.state

    @property
    def peer(self) -> Peer | None:
        """The features of the connected server; None without a connection."""
        return self._context.peer

    def positions(self, sub: int) -> dict[str, int]:
        """Position of each topic of a subscription, for a later `Subscribe(after=…)`."""
        return self.subscriptions.positions(sub)

    # ---------------------------------------------------------------- from the user

    def connect(self, *, opened: bool = False) -> None:
        """Connect; `opened`: a WebSocket to this address has worked in this process before."""
        self.lifecycle.connect(opened=opened)
        self._end_step(None)

    def close(self) -> None:
        """End after the publishes are settled."""
        self.lifecycle.fire("close")
        self._end_step(None)

    def abort(self) -> None:
        """End now; settle open publishes as unknown or rejected."""
        self.lifecycle.fire("abort")
        self._end_step(None)

    def subscribe(self, request: Subscribe) -> None:
        """Add a subscription."""
        if self.lifecycle.is_draining or self.state in FINAL:
            denied = tuple(
                wire.Denial(topic=topic, code=_CLOSED.code, message=_CLOSED.message)
                for topic in request.topics
            )
            self._ports.joined(request.sub, (), denied)
        else:
            self.subscriptions.subscribe(request)
            self.lifecycle.hurry()
        self._end_step(None)

    def unsubscribe(self, sub: int) -> None:
        """End a subscription."""
        self.subscriptions.unsubscribe(sub)
        self.own_presence.keep(self.subscriptions.wants)
        self._end_step(None)

    def publish(self, request: Publish) -> None:
        """Publish; the port `settle` receives the outcome."""
        lifecycle = self.lifecycle
        if lifecycle.is_draining or lifecycle.state in FINAL:
            self._ports.settle(request.ref, _CLOSED)
        else:
            self.publishes.publish(request)
            if lifecycle.state != "connected":
                lifecycle.hurry()
            elif not self._timers.due:
                return  # fast path: usually there is nothing to do at the end of the step
        self._end_step(None)

    def expire(self, ref: int) -> None:
        """The timeout of a publish has passed. It is not sent afterwards."""
        self.publishes.expire(ref)
        self._end_step(None)

    def update_presence(
        self, topic: str | None, data: Mapping[str, Any], ref: int | None = None
    ) -> None:
        """Change the user's own presence.

        Args:
            topic: The topic; None for all that the user is a member of.
            data: Keys with their new values.
            ref: Unique number that identifies the update in the port `settle`; None if no call
                waits.
        """
        if self.state not in FINAL:
            self.own_presence.update(topic, data, ref)
            self.lifecycle.hurry()
        elif ref is not None:
            self._ports.settle(ref, _CLOSED)
        self._end_step(None)

    # ---------------------------------------------------------------- from the runtime

    def token(self, call: int, value: str, expires_in: int | None = None) -> None:
        """The token callback answered; milliseconds until the token expires, if stated."""
        self._token(Token(call, value, expires_in))

    def token_failed(self, call: int, message: str, *, refused: bool) -> None:
        """The token callback raised; `refused`: another call is useless."""
        self._token(TokenFailed(call, refused, message))

    def opened(self, *, incremental: bool) -> None:
        """The transport is open; `incremental`: see `Peer`."""
        self.lifecycle.opened(incremental=incremental)
        self._end_step(None)

    def dropped(self, code: int | None, reason: str, retry_after: int | None = None) -> None:
        """The transport was closed, or could not be opened; see `Dropped`."""
        event = Dropped(code, reason, retry_after)
        self.lifecycle.dropped(event)
        self._end_step(event)

    def probed(self, *, ok: bool) -> None:
        """Whether a WebSocket could be opened in addition to the fallback."""
        event = Probed(ok)
        self.lifecycle.fire("probed", event)
        self._end_step(event)

    def answered(self, *, ok: bool) -> None:
        """Whether the HTTP address answered as a PubSub service."""
        event = Answered(ok)
        self.lifecycle.answered(event, ok=ok)
        self._end_step(event)

    def woke(self) -> None:
        """The machine slept, or the network is back."""
        self.lifecycle.woke()
        self._end_step(None)

    def offline(self) -> None:
        """The platform reports that the network is offline; this connection may still work."""
        self.lifecycle.fire("offline")
        self._end_step(None)

    def timer_fired(self, name: TimerName, idle: int) -> None:
        """A timer has run out; see `TimerFired`."""
        event = TimerFired(name, idle)
        if self._timers.fired(name):
            if name == "pace":
                self.publishes.paced()
                self.own_presence.flush()
            elif name == "rejoin":
                self.subscriptions.rejoin()
            elif name == "grace":
                self.subscriptions.presence.expire()
            else:
                self.lifecycle.timer_fired(event)
        self._end_step(event)

    def receive(self, frame: wire.ServerFrame, at: int) -> None:
        """A frame has arrived; see `Received`."""
        if type(frame) is MessageFrame:
            self.messages((frame.message,))
            return
        if type(frame) is PublishedFrame:
            self.published(frame)
            return
        event = Received(frame, at)
        match frame:
            case AuthOkFrame():
                self.lifecycle.fire("auth.ok", event)
            case AuthErrorFrame():
                self.lifecycle.fire("auth.error", event)
            case wire.AuthExpiringFrame():
                self.lifecycle.fire("auth.expiring", event)
            case wire.PongFrame():
                self.lifecycle.fire("pong", event)
            case ErrorFrame():
                self._error(frame, event)
            case _ if self._context.peer is None:
                pass
            case _:
                self.lifecycle.proves_well()
                self._answer(frame, at)
        self._end_step(event)

    def published(self, frame: PublishedFrame) -> None:
        """Like `receive`, for the answer to a publish: most other frames are one."""
        if self._context.peer is not None:
            self.lifecycle.proves_well()
            if not self.publishes.published(frame):
                self.own_presence.answered(frame.ref)
        self._end_step(None)

    def answered_one(
        self, frame: PublishedFrame | ErrorFrame, ref: str, slot: int, *, last: bool
    ) -> None:
        """The server answered one message of a publish; see `Publishes.answered_one`."""
        if isinstance(frame, PublishedFrame):
            self.lifecycle.proves_well()
        self.publishes.answered_one(frame, ref, slot, last=last)
        self._end_step(Received(frame, 0) if isinstance(frame, ErrorFrame) else None)

    # ---------------------------------------------------------------- inside

    def _answer(self, frame: wire.ServerFrame, at: int) -> None:
        match frame:
            case wire.SubscribedFrame():
                self.subscriptions.subscribed(frame, at)
            case wire.PresenceSnapshotFrame():
                self.subscriptions.presence.snapshot(frame)
            case _:
                pass  # `unsubscribed` contains no new information

    def _error(self, frame: ErrorFrame, event: Received) -> None:
        lifecycle = self.lifecycle
        if lifecycle.is_linked and ends_connection(frame):
            lifecycle.stay_away(frame.retry_after_ms or 0)
        if lifecycle.state == "authenticating" and action_of(frame.code) != "retry":
            lifecycle.fire("auth.error", event)
        elif self.peer is None:
            if lifecycle.is_linked:
                self._problem(frame)
        elif frame.code == "rate_limited" and self.own_presence.postponed(frame.ref):
            self.publishes.pause(frame.retry_after_ms)
        elif not (
            self.own_presence.refused(frame)
            or self.publishes.failed(frame)
            or self.subscriptions.failed(frame)
        ):
            if frame.code == "rate_limited":
                self.publishes.pause(frame.retry_after_ms)
            self._problem(frame)

    def _problem(self, frame: ErrorFrame) -> None:
        self._ports.problem(frame.code, frame.message, frame.topic, frame.retry_after_ms)

    def _token(self, event: Token | TokenFailed) -> None:
        self.lifecycle.token(event)
        self._end_step(event)

    def _end_step(self, event: Event) -> None:
        """End the session if it waits for that, and start the timers that are due."""
        lifecycle, timers = self.lifecycle, self._timers
        if lifecycle.is_draining and not len(self.publishes) and lifecycle.state not in FINAL:
            lifecycle.fire("drained", event)
        if timers.due:
            timers.start_due()
