"""The operations of a client, inside the event loop it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.runtime.http_operations import HttpApi
from hanzoai.pubsub.runtime.publisher import Publisher

if TYPE_CHECKING:
    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.runtime.driver import Driver
    from hanzoai.pubsub.values import Duration


class Operations:
    """The parts of a client in its event loop, and the operations that need several of them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.http = HttpApi(driver)
        self.publisher = Publisher(driver, self.http)
        self._end_reported = False

    async def connect(self, timeout: Duration | None) -> None:
        """Connect, and wait until the client is connected; see ``PubSubClient.connect``."""
        driver = self.driver
        driver.check_open()
        seconds = driver.timeout_of(timeout)
        driver.connect()
        driver.call(driver.session.connect)
        if not await driver.connected(seconds):
            driver.check_open()
            raise driver.failures.not_connected(seconds)

    async def close(self, timeout: float | None) -> None:
        """Close; see ``PubSubClient.close``."""
        driver, left = self.driver, 0.0
        try:
            left = await driver.close(timeout)
        finally:  # also when cancelled: otherwise, requests continue
            await self.http.close(left)
            await driver.tokens.close()

    def abandon(self) -> bool:
        """The client was garbage-collected: end without waiting. Returns whether it was open."""
        driver = self.driver
        began = driver.failures.state != "initialized"
        if driver.is_finished or not began or driver.loop.is_closed():
            return False
        if driver.owner.is_foreign:  # the parent process still uses it
            return False
        driver.loop.call_soon_threadsafe(driver.call, driver.session.abort)
        return True

    def report_end(self, error: PubSubError, topics: tuple[str, ...]) -> None:
        """Report the error that ended a subscription with handlers, if no call awaits it.

        An error that ended the client ends all subscriptions, and is reported once.
        """
        if error is self.driver.error:
            if self._end_reported:
                return
            self._end_reported = True
        self.driver.listeners.report(error, error.topic or topics[0])
