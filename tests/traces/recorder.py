"""Ports that write a log, and a session that returns the log of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.dialects import needs_dialect
from hanzoai.pubsub.dialects.plain.plain_dialect import PlainDialect
from hanzoai.pubsub.generated.wire import AuthOkFrame
from hanzoai.pubsub.session.session import Session
from tests.traces import effects
from tests.traces.events import Received, call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.wire import (
        AuthFrame,
        ClientFrame,
        Denial,
        Message,
        ServerFrame,
    )
    from hanzoai.pubsub.session.ports import (
        Outcome,
        Peer,
        Rejected,
        StateChanged,
        TransportName,
    )
    from hanzoai.pubsub.settings.session import SessionOptions
    from hanzoai.pubsub.values import PresenceChange, TokenReason
    from tests.traces.effects import Effect
    from tests.traces.events import Event, TimerName


class Log:
    """Ports that write each call into `entries`."""

    def __init__(self) -> None:
        self.entries: list[Effect] = []
        self.dialect: PlainDialect | None = None

    def take(self) -> list[Effect]:
        """Return the entries since the last call."""
        entries, self.entries = self.entries, []
        return entries

    def state_changed(self, change: StateChanged, /) -> None:
        self.entries.append(change)

    def dial(self, transport: TransportName, /) -> None:
        self.dialect = None
        self.entries.append(effects.Dial(transport))

    def hang_up(self, code: int, /) -> None:
        self.entries.append(effects.HangUp(code))

    def send(self, frame: ClientFrame, /) -> None:
        if self.dialect is None:
            self.write(frame)
        else:
            self.dialect.send(frame)

    def write(self, frame: ClientFrame) -> None:
        self.entries.append(effects.Send(frame))

    def welcomed(self, peer: Peer, /) -> None:
        """Ignored, because the log contains the frame itself."""

    def probe(self, auth: AuthFrame | None = None, /) -> None:
        self.entries.append(effects.Probe() if auth is None else effects.ProbeHttp(auth))

    def fetch_token(self, call: int, reason: TokenReason, attempt: int, /) -> None:
        self.entries.append(effects.Fetch(call, reason, attempt))

    def abandon_fetch(self, call: int, /) -> None:
        self.entries.append(effects.AbandonFetch(call))

    def start_timer(self, name: TimerName, after: int, /) -> None:
        self.entries.append(effects.StartTimer(name, after))

    def cancel_timer(self, name: TimerName, /) -> None:
        self.entries.append(effects.CancelTimer(name))

    def deliver(self, sub: int, messages: Sequence[Message], many: bool = False, /) -> None:
        self.entries += [effects.Deliver(sub, message) for message in messages]

    def gap(self, sub: int, gap: Gap, many: bool = False, /) -> None:
        self.entries.append(effects.Gap(sub, gap.topic, gap.from_, gap.to, gap.missed, gap.reason))

    def joined(self, sub: int, topics: tuple[str, ...], denied: tuple[Denial, ...], /) -> None:
        self.entries.append(effects.Joined(sub, topics, denied))

    def presence_changed(self, sub: int, change: PresenceChange, /) -> None:
        self.entries.append(
            effects.PresenceChanged(sub, change.topic, change.members, change.change, change.member)
        )

    def settle(self, ref: int, outcome: Outcome, /) -> None:
        self.entries.append(effects.Settle(ref, outcome))

    def problem(self, problem: Rejected, /) -> None:
        self.entries.append(
            effects.Problem(problem.code, problem.message, problem.topic, problem.retry_after_ms)
        )

    def finished(self, error: Rejected | None, /) -> None:
        self.entries.append(effects.Finished(error))


class LoggedSession(Session):
    """A session whose ports write a log; if the peer needs a dialect, the session uses it.

    Args:
        options: Options of the session.
        random: Returns a number from 0 inclusive to 1 exclusive.
    """

    def __init__(self, options: SessionOptions, random: Callable[[], float]) -> None:
        self.log = Log()
        super().__init__(options, self.log, random)

    def handle(self, event: Event) -> list[Effect]:
        """Pass an event to the session; return the log of the step."""
        if isinstance(event, Received):
            self._receive(event.frame, event.at)
        else:
            call(self, event)
        return self.log.take()

    def _receive(self, frame: ServerFrame, at: int) -> None:
        if isinstance(frame, AuthOkFrame):
            if not needs_dialect(frame):
                self.log.dialect = None
            elif self.log.dialect is None:
                self.log.dialect = PlainDialect(self, self.log.write)
        (self.log.dialect or self).receive(frame, at)
