"""The session: a pure step function, events in, effects out.

What the whole SDK decides, it decides here: `lifecycle` follows the table, `joins` keeps
subscriptions, `outbox` keeps publishes; this is where each kind of event finds its way to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.generated.lifecycle import FINAL, TIMERS
from hanzoai.pubsub.generated.wire import AuthErrorFrame, AuthOkFrame, ErrorFrame, MessageFrame
from hanzoai.pubsub.session import events
from hanzoai.pubsub.session.causes import action_of, ends_connection
from hanzoai.pubsub.session.effects import Joined, Problem, Rejected, Settle
from hanzoai.pubsub.session.events import Dropped, Received, TimerFired, Token, TokenFailed
from hanzoai.pubsub.session.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.session.effects import Effect
    from hanzoai.pubsub.session.events import Event
    from hanzoai.pubsub.settings.session import SessionOptions


class Session(Lifecycle):
    """One client's life, from `Connect` to `Finished`.

    Args:
        options: What it is set to.
        random: A number from 0 inclusive to 1 exclusive.
    """

    def __init__(self, options: SessionOptions, random: Callable[[], float]) -> None:
        super().__init__(options, random)
        self._handlers: Final[dict[type[Any], Callable[[Any], None]]] = {
            events.Connect: self._connect,
            events.Close: lambda event: self._fire("close", event),
            events.Abort: lambda event: self._fire("abort", event),
            events.Probed: lambda event: self._fire("probed", event),
            events.Answered: self._http_answered,
            events.Woke: self._woke,
            events.Offline: lambda event: self._fire("offline", event),
            Token: self._token,
            TokenFailed: self._token,
            events.Opened: self._opened,
            Dropped: self._dropped,
            Received: self._received,
            TimerFired: self._timer_fired,
            events.Subscribe: self._subscribe,
            events.Unsubscribe: self._unsubscribe,
            events.Publish: self._publish,
            events.Expire: lambda event: self.outbox.expire(event.ref, self._out),
            events.UpdatePresence: self._update_presence,
        }

    # ---------------------------------------------------------------- what others may ask

    def positions(self, sub: int) -> dict[str, int]:
        """Position of each topic of a subscription, for `Subscribe(after=…)` at another time."""
        return self.joins.positions(sub)

    # ---------------------------------------------------------------- events in, effects out

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return the effects, to be performed in order.

        Nothing that comes from the network makes it raise: what has no meaning now is ignored.
        """
        out: list[Effect] = []
        if type(event) is Received and type(event.frame) is MessageFrame:
            if self._online:
                self.joins.message(event.frame.message, out)
                if self.joins.due is not None:
                    self._out = out
                    self._start_due()
            return out
        self._out = out
        self._handlers[type(event)](event)
        if self._draining and not len(self.outbox) and self.state not in FINAL:
            self._fire("drained", event)
        self._start_due()
        return out

    def _start_due(self) -> None:
        """Start the timers that queue and subscriptions ask for."""
        if (pace := self.outbox.take_pace()) is not None:
            self._start("pace", pace)
        if (due := self.joins.take_due()) is not None:
            self._start("rejoin", due)

    # ---------------------------------------------------------------- each kind of event

    def _connect(self, event: events.Connect) -> None:
        self._has_opened |= event.opened
        self._fire("connect", event)
        self._hurry(event)

    def _hurry(self, event: Event) -> None:
        """The program called: what waits long for the next attempt does so no longer."""
        if self._sleeping:
            self._called = "hold" in self._timers
            if not self._called:
                self._fire("called", event)

    def _http_answered(self, event: events.Answered) -> None:
        self._asking = False
        self._answered = event.ok
        if not event.ok:
            self._failures = 0
        self._fire("answered", event)

    def _token(self, event: Token | TokenFailed) -> None:
        if self._credentials.answered(event.fetch):
            self._stop("fetch")
            self._fire("token" if isinstance(event, Token) else "token_failed", event)

    def _opened(self, event: events.Opened) -> None:
        if self._linked:
            self._incremental = event.incremental
            self._fire("opened", event)

    def _dropped(self, event: Dropped) -> None:
        if self._linked:
            self._linked = False
            self._fire("dropped", event)

    def _woke(self, event: events.Woke) -> None:
        if self._credentials.life is not None and self._credentials.renewable:
            self.forget_token(event)  # nobody knows how long the sleep was
        self._fire("woke", event)

    def _timer_fired(self, event: TimerFired) -> None:
        if event.name not in self._timers:
            return
        del self._timers[event.name]
        if event.name == "pace":
            self.outbox.paced(self._out)
            self.saying.flush(self._out)
        elif event.name == "rejoin":
            self.joins.rejoin(self._out)
        elif event.name == "hold":
            if self._called:
                self._fire("called", event)
        else:
            if event.name == "suspend":
                self._overdue = True
                self._apart = max(self._apart, self._options.suspend_after)
            self._late |= event.name == "fallback"
            self._fire(TIMERS[event.name], event)

    def _subscribe(self, event: events.Subscribe) -> None:
        if self._draining or self.state in FINAL:
            message = "The client is closed."
            denied = tuple(
                wire.Denial(topic=topic, code="closed", message=message) for topic in event.topics
            )
            self._out.append(Joined(event.sub, (), denied))
        else:
            self.joins.subscribe(event, self._out)
            self._hurry(event)

    def _unsubscribe(self, event: events.Unsubscribe) -> None:
        self.joins.unsubscribe(event.sub, self._out)
        self.saying.keep(self.joins.wants)

    def _publish(self, event: events.Publish) -> None:
        if self._draining or self.state in FINAL:
            self._out.append(Settle(event.ref, Rejected("closed", "The client is closed.")))
        else:
            self.outbox.publish(event, self._out)
            self._hurry(event)

    def _update_presence(self, event: events.UpdatePresence) -> None:
        if self.state not in FINAL:
            self.saying.say(event.topic, event.data, event.ref, self._out)
            self._hurry(event)
        elif event.ref is not None:
            self._out.append(Settle(event.ref, Rejected("closed", "The client is closed.")))

    def _received(self, event: Received) -> None:
        frame = event.frame
        match frame:
            case AuthOkFrame():
                self._fire("auth.ok", event)
            case AuthErrorFrame():
                self._fire("auth.error", event)
            case wire.AuthExpiringFrame():
                self._fire("auth.expiring", event)
            case wire.PongFrame():
                self._fire("pong", event)
            case ErrorFrame():
                self._error(frame, event)
            case _ if not self._online:
                pass
            case _:
                if not self._works:
                    self._proves_well()
                self._served(frame, event)

    def _served(self, frame: wire.ServerFrame, event: Received) -> None:
        match frame:
            case wire.SubscribedFrame():
                self.joins.subscribed(frame, event.at, self._out)
            case wire.PublishedFrame():
                if not self.saying.answered(frame.ref, self._out):
                    self.outbox.published(frame, self._out)
            case wire.PresenceSnapshotFrame():
                self.joins.snapshot(frame, self._out)
            case _:
                pass  # `unsubscribed` says nothing that is not known

    def _error(self, frame: ErrorFrame, event: Received) -> None:
        if self._linked and ends_connection(frame):
            self._stay_away = frame.retry_after_ms or 0
        if self.state == "authenticating" and action_of(frame.code) != "retry":
            self._fire("auth.error", event)
        elif not self._online:
            if self._linked:
                self._out.append(_problem(frame))
        elif frame.code == "rate_limited" and self.saying.postponed(frame.ref, self._out):
            self.outbox.pause(frame.retry_after_ms)
        elif not (
            self.saying.refused(frame, self._out)
            or self.outbox.failed(frame, self._out)
            or self.joins.failed(frame, self.outbox.may_be_about, self._out)
        ):
            if frame.code == "rate_limited":
                self.outbox.pause(frame.retry_after_ms)
            self._out.append(_problem(frame))


def _problem(frame: ErrorFrame) -> Problem:
    return Problem(frame.code, frame.message, frame.topic, frame.retry_after_ms)
