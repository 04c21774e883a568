"""The operations of a client, inside the event loop it runs in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub.errors import (
    ConnectionFailed,
    InvalidPayload,
    OperationTimeout,
    PermissionDenied,
    PubSubError,
    from_code,
)
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.runtime.driver import Driver
from hanzoai.pubsub.runtime.handlers import Listener
from hanzoai.pubsub.runtime.http_operations import HttpApi
from hanzoai.pubsub.runtime.publisher import Publisher
from hanzoai.pubsub.runtime.states import StateStream
from hanzoai.pubsub.runtime.tokens import TokenSource
from hanzoai.pubsub.runtime.topic_arguments import one_topic, pattern_list, position_map
from hanzoai.pubsub.session.ports import Outcome, Rejected
from hanzoai.pubsub.session.session import Session
from hanzoai.pubsub.settings.checks import check_seconds
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from hanzoai.pubsub.runtime.handlers import Handler
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.runtime.surroundings import Surroundings
    from hanzoai.pubsub.session.events import Subscribe
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.values import (
        Duration,
        Limits,
        Message,
        Occupancy,
        PositionList,
        PresenceMember,
        Since,
        StateChange,
        StateName,
        TopicInfo,
        Topics,
    )

logger = logging.getLogger("hanzoai.pubsub")

_REMEDY: Final = "Try again, or wait longer; `hanzo-pubsub doctor` finds the first cause."

_WAIT_MAX: Final = 30.0
"""Maximum seconds that a request can ask the server to wait."""


class Operations:
    """The operations of a client.

    Args:
        options: Options of the client.
        around: Clock, randomness, transports.
        on_state: The program's listener.
        on_error: The program's listener.

    Attributes:
        publisher: Publishes.
    """

    def __init__(
        self,
        options: ClientOptions,
        around: Surroundings,
        *,
        on_state: Handler[StateChange] | None,
        on_error: Handler[Exception] | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._options = options
        self._clock = around.clock
        self._tokens = TokenSource(options, around.clock)
        self._http = HttpApi(options, around, self._tokens)
        self._driver = driver = Driver(
            lambda ports: Session(options.session(), ports, around.random),
            options,
            around.clock,
            self._tokens,
            dial=lambda name: around.dial(name, options, self._tokens),
            opened=around.opened,
            on_state=self._state_changed,
            on_error=self.report,
            on_welcome=self._http.learn,
            on_joined=self._joined,
        )
        self._state_listener = (
            None if on_state is None else Listener(on_state, "on_state", driver.spawn)
        )
        self._error_listener = (
            None if on_error is None else Listener(on_error, "on_error", driver.spawn)
        )
        self._streams: set[StateStream] = set()
        self._end_told = False
        self.publisher = Publisher(driver, self._http, options, around.clock, self.update_presence)

    # ------------------------------------------------------------ lifecycle

    @property
    def state(self) -> StateName:
        """The current state."""
        return self._driver.state

    @property
    def client_id(self) -> str | None:
        """The id that the server assigned."""
        return self._driver.client_id

    @property
    def slowed(self) -> int:
        """Number of publishes that the rate delayed by a second or more."""
        return self._driver.slowed

    @property
    def limits(self) -> Limits | None:
        """The server's limits."""
        driver = self._driver
        return None if driver.client_id is None else driver.limits

    @property
    def transport(self) -> TransportName | None:
        """The current transport."""
        return self._driver.failures.transport

    @property
    def outage(self) -> str | None:
        """Since when there has been no connection, and why; None with a connection."""
        return self._driver.failures.outage(self.state)

    @property
    def error(self) -> PubSubError | None:
        """The error that ended the client, if any."""
        return self._driver.error

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Start a task for which `close` waits."""
        self._driver.spawn(coroutine, name)

    def patience(self, timeout: Duration | None) -> float:
        """Timeout of an operation in seconds; default ``operation_timeout``."""
        return self._driver.patience(timeout)

    async def connect(self, timeout: Duration | None) -> None:
        """Connect, and wait until the client is connected; see ``PubSubClient.connect``."""
        driver = self._driver
        self._driver.refuse_ended()
        driver.hurry()
        seconds = self._driver.patience(timeout)
        if not await driver.until(lambda: driver.state == "connected", seconds):
            self._driver.refuse_ended()
            raise self._not_connected(seconds)

    async def close(self, timeout: float | None) -> None:
        """Close; see ``PubSubClient.close``."""
        patience = self._options.close_timeout if timeout is None else timeout
        ends = self._clock.now() + patience
        await self._driver.close(timeout)
        await self._http.close(max(0.0, ends - self._clock.now()))
        await self._tokens.close()
        for stream in list(self._streams):
            stream.finish()

    def abandon(self) -> bool:
        """The client was garbage-collected: end without waiting. Returns whether it was open."""
        if self._driver.is_finished or self._driver.state == "initialized" or self.loop.is_closed():
            return False
        self.loop.call_soon_threadsafe(self._driver.abort)
        return True

    def states(self) -> AsyncIterator[StateChange]:
        """State changes from now on."""
        stream = StateStream(self._streams.discard)
        if self._driver.is_finished:
            stream.finish()
        else:
            self._streams.add(stream)
        return stream

    def report(self, error: Exception, topic: str | None) -> None:
        """Report an error that no call can raise to the program (ERR-1)."""
        if self._error_listener is not None:
            if topic is not None and not isinstance(error, PubSubError):
                error.add_note(f"topic: {topic}")
            self._error_listener.notify(error)
        elif isinstance(error, PubSubError):
            # A restarting server sends this; no action is needed.
            level = logging.WARNING if error.code == "going_away" else logging.ERROR
            logger.log(level, "%s: %s (topic %s)", error.code, error, topic)
        else:
            logger.error("A handler of topic %s raised an exception", topic, exc_info=error)

    def report_end(self, error: PubSubError, topics: tuple[str, ...]) -> None:
        """Report the error that ended a subscription with handlers, if no call awaits it.

        An error that ended the client ends all subscriptions, and is reported once.
        """
        if error is self._driver.error:
            if self._end_told:
                return
            self._end_told = True
        self.report(error, error.topic or topics[0])

    def _state_changed(self, change: StateChange) -> None:
        if self._state_listener is not None:
            self._state_listener.notify(change)
        for stream in list(self._streams):
            stream.put(change)
            if change.to in ("closed", "failed"):
                stream.finish()

    def _not_connected(
        self, seconds: float, *, code: str | None = None, topic: str | None = None
    ) -> PubSubError:
        """The error class for the last failure."""
        failures = self._driver.failures
        message = f"Not connected within {seconds:g} s: {failures.why(self.state)}"
        last = None if failures.last is None else failures.last.code
        if failures.cause is not None and isinstance(last, str):
            remedy = failures.remedy(None)
            return from_code(last, message, topic=topic, remedy=remedy, cause=failures.cause)
        known = CODES.get(str(last)) if code is None and last != "timeout" else None
        remedy = None if known is None else known.remedy
        return ConnectionFailed(message, code=code, topic=topic, remedy=remedy)

    # ------------------------------------------------------------ subscriptions

    def add(self, request: Subscribe, inbox: Inbox, presence: Inbox) -> None:
        """Begin a subscription."""
        self._driver.refuse_ended()
        self._driver.subscribe(request, inbox, presence)

    def remove(self, sub: int) -> None:
        """End a subscription; from any thread."""
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            self._driver.unsubscribe(sub)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._driver.unsubscribe, sub)

    def _joined(self, inbox: Inbox) -> None:
        """Warn, once per subscription, if `history` exceeds what the server retains."""
        asked, inbox.history = inbox.history or 0, None
        kept = self._driver.limits.history_max
        if kept is not None and asked > kept:
            logger.warning(
                "subscribe() to %s asks for `history` of %s messages, and the server retains %s "
                "messages of a topic, unless its settings say otherwise for this topic "
                "(`ps.limits.history_max`).",
                inbox.topics[0],
                f"{asked:,}",
                f"{kept:,}",
            )

    async def wait_joined(self, inbox: Inbox) -> None:
        """Wait until the server has answered a subscription, or it has ended."""
        seconds = self._options.operation_timeout
        if not await self._driver.until(lambda: inbox.joined or inbox.finished, seconds):
            failures = self._driver.failures
            raise OperationTimeout(
                f"The server did not answer the subscription within {seconds:g} s; it stays in "
                f"force and may still be answered. {failures.standing(self.state)}",
                topic=inbox.topics[0],
                remedy=failures.remedy(_REMEDY),
                cause=failures.cause,
                outcome_unknown=True,
            )

    # ------------------------------------------------------------ presence

    async def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None
    ) -> None:
        """Change how this client appears; see ``PubSubClient.update_presence``."""
        if topic is not None:
            validate_topic(topic)
        # Callers without a type checker may pass any value.
        if not isinstance(cast("object", data), Mapping):
            raise InvalidPayload(
                "The presence update is not an object.",
                remedy="Pass `status` and other keys with their values.",
                field="data",
                topic=topic,
            )
        check_data(data, self.publisher.max_payload, topic=topic)
        self._driver.refuse_ended()
        driver = self._driver
        driver.connect()
        seconds = driver.patience(timeout)
        settled = driver.update_presence(topic, dict(data))

        def give_up() -> None:
            settled.cancel()

        timer = self._clock.call_later(seconds, give_up)
        try:
            outcome = await settled
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            if driver.state != "connected":
                raise self._not_connected(seconds, code="not_connected", topic=topic) from None
            where = driver.failures.standing(driver.state)
            raise OperationTimeout(
                f"The server did not answer the update of presence within {seconds:g} s. {where}",
                topic=topic,
                remedy=(
                    "No action is needed: the client sends the update again until it is answered."
                ),
                outcome_unknown=True,
            ) from None
        finally:
            timer.cancel()
        if isinstance(outcome, Rejected):
            raise _refusal(outcome, topic)

    def appear(self, topic: str, data: Mapping[str, Any]) -> None:
        """Set the presence of this client, now or with the next connection; report a rejection."""
        settled = self._driver.update_presence(topic, dict(data))

        def report(settled: asyncio.Future[Outcome]) -> None:
            if settled.cancelled() or not isinstance(outcome := settled.result(), Rejected):
                return
            if outcome.code != "closed":
                self.report(_refusal(outcome, topic), topic)

        settled.add_done_callback(report)

    # ------------------------------------------------------------ over HTTP

    def history(
        self,
        topic: str,
        *,
        since: Since | None,
        before: str | None,
        after: int | None,
        limit: int | None,
        timeout: Duration | None,
    ) -> AsyncIterator[Message]:
        """Retained messages; see ``PubSubClient.history``."""
        self._driver.refuse_ended()
        return self._http.history(
            one_topic(topic),
            since=since,
            before=before,
            after=after,
            limit=limit,
            seconds=self._driver.patience(timeout),
        )

    async def presence(self, topic: str, *, timeout: Duration | None) -> list[PresenceMember]:
        """The members of a topic."""
        self._driver.refuse_ended()
        return await self._http.presence(one_topic(topic), self._driver.patience(timeout))

    async def occupancy(self, topic: str, *, timeout: Duration | None) -> Occupancy:
        """The number of members of one topic."""
        self._driver.refuse_ended()
        return await self._http.occupancy(one_topic(topic), self._driver.patience(timeout))

    async def topics(
        self, prefix: str | None, *, limit: int | None, timeout: Duration | None
    ) -> list[TopicInfo]:
        """Active topics."""
        self._driver.refuse_ended()
        try:
            return await self._http.topics(prefix, limit, self._driver.patience(timeout))
        except PermissionDenied as error:
            error.remedy = "Listing topics requires the token of an administrator."
            raise

    async def positions(
        self,
        topics: Topics,
        *,
        after: Mapping[str, int] | None,
        at: Since | None,
        wait: Duration,
        timeout: Duration | None,
    ) -> PositionList:
        """The positions of topics; see ``PubSubClient.positions``."""
        self._driver.refuse_ended()
        names = pattern_list(topics)
        known = None if after is None else position_map(after)
        patience = check_seconds("wait", wait, 0.0, _WAIT_MAX)
        return await self._http.positions(
            names, after=known, at=at, wait=patience, seconds=self._driver.patience(timeout)
        )


def _refusal(outcome: Rejected, topic: str | None) -> PubSubError:
    wait = outcome.retry_after
    return from_code(
        outcome.code,
        outcome.message,
        remedy=outcome.remedy,
        topic=outcome.topic or topic,
        field=outcome.field,
        retry_after=None if wait is None else wait / 1000,
    )
