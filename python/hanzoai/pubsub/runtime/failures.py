"""The failures of a client: its last one, its log lines, and the errors of its calls.

The session decides how to react to a failure. This module logs it: the reason of an outage once per
outage, unless it is a restart that the server announced and that ends soon; and the reason for
another transport than requested once.
"""

from __future__ import annotations

import logging
import traceback
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ConnectionFailed, OperationTimeout, PubSubError, from_code
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.http.status import remedy_of
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.session.events import TIMEOUTS, code_of

if TYPE_CHECKING:
    from hanzoai.pubsub.runtime.environment import Environment
    from hanzoai.pubsub.session.ports import Rejected, TransportName
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.values import StateChange, StateName

logger = logging.getLogger("hanzoai.pubsub")

_TOKEN: Final = "token_unavailable"
_TOKEN_REMEDY: Final = (
    "Fix `get_token`, or the server that it calls; its exception is the `__cause__` of this one. "
    "It is called with a TokenContext and returns a string or a Token."
)
_PATIENCE: Final = 4
"""Failures before a client warns of an outage that began with a restart of the server."""
_REASONS_MAX: Final = 8
"""Reasons that a client logs, at most, before it has a stable connection."""
_FETCH_REMEDY: Final = "Let `get_token` return within `fetch_timeout`, 10 s by default."


class Failures:
    """The failures of one client."""

    def __init__(self, options: ClientOptions, environment: Environment) -> None:
        clock = self._clock = environment.clock
        self.state: StateName = "initialized"
        # Unix milliseconds and monotonic seconds since when there has been no connection.
        self._disconnected_since = (clock.wall_ms(), clock.now())
        # Failure of the last connection or attempt, until there is a connection again.
        self.last: StateChange | None = None
        self.cause: Exception | None = None  # the exception of `get_token`, if that caused it
        self._url = environment.url or options.socket_url
        self._auto = options.transport == "auto"
        self._dialed: TransportName | None = None
        self._problem: Rejected | None = None
        self._socket_failed = "it did not open in time"
        self._logged_outage = False
        self._logged_reasons: set[str] = set()
        self._logged_fallback = False
        self._patience = 1

    @property
    def transport(self) -> TransportName | None:
        """The transport of the current connection; None without a connection."""
        return self._dialed if self.state == "connected" else None

    # ------------------------------------------------------------ events

    def dialed(self, transport: TransportName) -> None:
        """A transport is being opened."""
        self._dialed = transport
        self._problem = None

    def note_problem(self, problem: Rejected) -> None:
        """The server sent an error of its own, perhaps before it closes the connection."""
        self._problem = problem
        if problem.code == "going_away":
            self._patience = _PATIENCE

    def dropped(self, code: int | None, reason: str) -> str:
        """The transport has closed, or did not open. Returns the reason in words."""
        problem = self._problem
        if problem is not None and problem.message and problem.code in (reason, code_of(code)):
            reason = problem.message
        elif (known := CODES.get(reason)) is not None:
            reason = known.meaning
        if self._dialed == "websocket":
            self._socket_failed = reason.rstrip(".") or "it ended without a reason"
        return reason

    def changed(self, change: StateChange) -> None:
        """The public state has changed."""
        if change.from_ in ("initialized", "connected"):
            self._disconnected_since = (self._clock.wall_ms(), self._clock.now())
        self.state = change.to
        if change.to == "connected":
            self.last = self.cause = None
            self._logged_outage = False
            self._patience = 1
            self._log_fallback()
        elif change.code is not None or change.reason:
            self.last = change
            if change.code != _TOKEN:
                self.cause = None
            if change.to in ("reconnecting", "suspended"):
                self._log_outage(change)

    # ------------------------------------------------------------ log lines

    def reason(self) -> str:
        """The reason why there is no connection, in words."""
        if self.last is not None:
            return reason_of(self.last)
        if self._dialed is None and self.state == "connecting":
            return "`get_token` has not returned."
        return f"the server has not answered; the state is {self.state}."

    def not_connected(
        self, seconds: float, *, code: str | None = None, topic: str | None = None
    ) -> PubSubError:
        """The error of a call that waited for a connection; `code` instead of the usual one."""
        message = f"Not connected within {seconds:g} s: {self.reason()}"
        last = None if self.last is None else self.last.code
        if self.cause is not None and isinstance(last, str):
            remedy = self.remedy(None)
            return from_code(last, message, topic=topic, remedy=remedy, cause=self.cause)
        known = CODES.get(str(last)) if code is None and last != "timeout" else None
        remedy = None if known is None else known.remedy
        if self.last is not None:
            remedy = remedy_of(self.last.reason) or remedy
        return ConnectionFailed(message, code=code, topic=topic, remedy=remedy)

    def describe_state(self) -> str:
        """The state, the duration of the outage, and the last failure, in words."""
        connected = self.state == "connected"
        outage = "" if connected else f", no connection for {self._outage_seconds():.1f} s"
        why = f" Last failure: {self.reason()}" if self.last is not None else ""
        return f"State: {self.state}{outage}.{why}"

    def outage(self) -> str | None:
        """Since when there has been no connection, and why; None with a connection."""
        if self.state == "connected":
            return None
        began = datetime.fromtimestamp(self._disconnected_since[0] / 1000).astimezone()
        since = f"{began.isoformat(timespec='seconds')} ({self._outage_seconds():.1f} s)"
        return f"The client has not been connected since {since}: {self.reason()}"

    def _outage_seconds(self) -> float:
        return self._clock.now() - self._disconnected_since[1]

    def remedy(self, usual: str | None) -> str | None:
        """The remedy of the last failure; without a failure, the usual one."""
        if self.last is None:
            return usual
        if self.last.code == _TOKEN:
            return self.cause.remedy if isinstance(self.cause, PubSubError) else _TOKEN_REMEDY
        if self.last.reason == TIMEOUTS["fetch"].message:
            return _FETCH_REMEDY
        if (start := remedy_of(self.last.reason)) is not None:
            return start
        lost = self.last.code in (None, 1006, "timeout")
        known = CODES.get("connection_failed" if lost else str(self.last.code))
        return usual if known is None else known.remedy

    def _log_outage(self, change: StateChange) -> None:
        if change.attempt <= 1:  # the last connection was stable, or there was none
            self._logged_reasons.clear()
            if self._dialed == "websocket":
                self._logged_fallback = False
        if self._logged_outage or change.attempt < self._patience:
            return
        # A failure of a callback is reported as an error.
        if change.code != _TOKEN:
            self._logged_outage = True
            why = log_text(self.reason())
            # Connections that are lost again and again must not fill the log.
            if why not in self._logged_reasons and len(self._logged_reasons) < _REASONS_MAX:
                self._logged_reasons.add(why)
                words = " ".join(filter(None, (why, self.remedy(None), "The client keeps trying.")))
                logger.warning("No connection to %s: %s", self._url, words)

    def _log_fallback(self) -> None:
        fallen_back = self._auto and self._dialed == "sse"
        if fallen_back and not self._logged_fallback:
            self._logged_fallback = True
            logger.warning(
                "The WebSocket %s failed (%s); using server-sent events instead. Check the port "
                "and path of `url`, and that proxies pass WebSocket upgrades.",
                self._url,
                log_text(self._socket_failed),
            )


def rejected(outcome: Rejected, topic: str | None = None, id: str | None = None) -> PubSubError:
    """The error of a rejected operation; `topic`: its topic, `id`: the id of its message."""
    wait = outcome.retry_after_ms
    error = from_code(
        outcome.code,
        outcome.message,
        remedy=outcome.remedy,
        topic=outcome.topic or topic,
        field=outcome.field,
        retry_after=None if wait is None else wait / 1000,
    )
    if isinstance(error, OperationTimeout):
        error.id = id
    return error


def reason_of(failure: StateChange) -> str:
    """The reason of a failure, in words."""
    cause = failure.reason.rstrip(".") or f"the state is {failure.to}"
    if failure.code is None or failure.code == 1006:
        return f"{cause}."
    return f"{cause} ({failure.code})."


def unavailable(error: Exception) -> PubSubError:
    """The error of a call or client that got no token, because ``get_token`` raised another one."""
    remedy = error.remedy if isinstance(error, PubSubError) else None
    message = f"{describe_failure(error)}."
    return from_code("token_unavailable", message, remedy=remedy, cause=error)


def describe_failure(error: Exception) -> str:
    """The text about an exception of ``get_token``.

    The text of a foreign exception may contain a secret; its class and position do not.
    """
    if isinstance(error, PubSubError):
        return error.message.rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {PurePath(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"get_token raised {type(error).__name__}{place}"
