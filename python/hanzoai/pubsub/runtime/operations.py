"""The operations of a client, inside the event loop it runs in."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import OperationTimeout, PubSubError
from hanzoai.pubsub.runtime.driver import Driver
from hanzoai.pubsub.runtime.handlers import Listener
from hanzoai.pubsub.runtime.http_operations import HttpApi
from hanzoai.pubsub.runtime.publisher import Publisher
from hanzoai.pubsub.runtime.states import StateStream
from hanzoai.pubsub.runtime.tokens import TokenSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hanzoai.pubsub.runtime.handlers import Handler
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.runtime.surroundings import Surroundings
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.values import Duration, StateChange

logger = logging.getLogger("hanzoai.pubsub")

_REMEDY: Final = "Try again, or wait longer; `hanzo-pubsub doctor` finds the first cause."


class Operations:
    """The parts of a client in its event loop, and the operations that need several of them.

    Attributes:
        driver: The connection.
        publisher: Publishes, and updates of presence.
        http: Operations over HTTP.
    """

    def __init__(
        self,
        options: ClientOptions,
        around: Surroundings,
        *,
        on_state: Handler[StateChange] | None,
        on_error: Handler[Exception] | None,
    ) -> None:
        tokens = TokenSource(options, around.clock)
        driver = self.driver = Driver(
            options, around, tokens, on_state=self._state_changed, on_error=self.report
        )
        self.http = HttpApi(driver, around)
        self.publisher = Publisher(driver, self.http, self.report)
        self._state_listener = (
            None if on_state is None else Listener(on_state, "on_state", driver.spawn)
        )
        self._error_listener = (
            None if on_error is None else Listener(on_error, "on_error", driver.spawn)
        )
        self._streams: set[StateStream] = set()
        self._end_told = False

    # ------------------------------------------------------------ lifecycle

    async def connect(self, timeout: Duration | None) -> None:
        """Connect, and wait until the client is connected; see ``PubSubClient.connect``."""
        driver = self.driver
        driver.refuse_ended()
        driver.hurry()
        seconds = driver.patience(timeout)
        if not await driver.until(lambda: driver.state == "connected", seconds):
            driver.refuse_ended()
            raise driver.failures.not_connected(driver.state, seconds)

    async def close(self, timeout: float | None) -> None:
        """Close; see ``PubSubClient.close``."""
        driver, clock = self.driver, self.driver.clock
        ends = clock.now() + (driver.options.close_timeout if timeout is None else timeout)
        await driver.close(timeout)
        await self.http.close(max(0.0, ends - clock.now()))
        await driver.tokens.close()
        for stream in list(self._streams):
            stream.finish()

    def abandon(self) -> bool:
        """The client was garbage-collected: end without waiting. Returns whether it was open."""
        driver = self.driver
        if driver.is_finished or driver.state == "initialized" or driver.loop.is_closed():
            return False
        driver.loop.call_soon_threadsafe(driver.abort)
        return True

    def states(self) -> AsyncIterator[StateChange]:
        """State changes from now on."""
        stream = StateStream(self._streams.discard)
        if self.driver.is_finished:
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
        if error is self.driver.error:
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

    # ------------------------------------------------------------ subscriptions

    def remove(self, sub: int, *, collected: bool) -> None:
        """End a subscription; from any thread. The garbage collector may interrupt anything."""
        driver = self.driver
        try:
            here = asyncio.get_running_loop() is driver.loop
        except RuntimeError:
            here = False
        if here and not collected:
            driver.unsubscribe(sub)
        elif not driver.loop.is_closed():
            driver.loop.call_soon_threadsafe(driver.unsubscribe, sub)

    async def wait_joined(self, inbox: Inbox) -> None:
        """Wait until the server has answered a subscription, or it has ended."""
        driver, failures = self.driver, self.driver.failures
        seconds = driver.options.operation_timeout
        if not await driver.until(lambda: inbox.joined or inbox.finished, seconds):
            raise OperationTimeout(
                f"The server did not answer the subscription within {seconds:g} s; it stays in "
                f"force and may still be answered. {failures.standing(driver.state)}",
                topic=inbox.topics[0],
                remedy=failures.remedy(_REMEDY),
                cause=failures.cause,
                outcome_unknown=True,
            )
