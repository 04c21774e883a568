"""The operations of a client in its event loop, also those over HTTP."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, TypeVar

from hanzoai.pubsub.errors import NotFound, OperationTimeout, PermissionDenied, PubSubError
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.page_cursor import PageCursor
from hanzoai.pubsub.runtime.arguments import SEQ_MAX, page_end, pattern_list, position_map, unix_ms
from hanzoai.pubsub.runtime.publisher import Publisher
from hanzoai.pubsub.runtime.threads import load
from hanzoai.pubsub.session.ports import Acked
from hanzoai.pubsub.settings.checks import check_seconds, check_text, check_whole, invalid
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.values import occupancy_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import PresenceMember
    from hanzoai.pubsub.http.rest import Rest
    from hanzoai.pubsub.runtime.driver import Driver
    from hanzoai.pubsub.session.ports import Publish
    from hanzoai.pubsub.values import (
        Before,
        Duration,
        Message,
        Occupancy,
        PositionList,
        Since,
        TopicInfo,
        Topics,
    )

T = TypeVar("T")


_ASK_AGAIN: Final = 60.0
"""Seconds after which a missing HTTP API is tried again."""

_WAIT_MAX: Final = 30.0
"""Maximum seconds that a request can ask the server to wait."""


class HttpApi:
    """The HTTP side of a client."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._clock = driver.clock
        self._made: Rest | None = None
        self._found = False
        self._ask_again_at = -math.inf
        self._order = asyncio.Lock()

    @property
    def rest(self) -> Rest:
        """The HTTP API, set up at its first use."""
        driver = self._driver
        if self._made is None:
            driver.check_open()
            from hanzoai.pubsub.http.rest import Rest

            self._made = Rest(
                driver.options,
                driver.tokens,
                self._clock,
                random=driver.environment.random,
                transport=driver.environment.http_transport(),
            )
        self._made.features = None if driver.peer is None else driver.peer.features
        return self._made

    async def _loaded(self) -> Rest:
        if self._driver.environment.peer is None:
            await load("hanzoai.pubsub.http.rest", "Rest")
        return self.rest

    async def close(self, timeout: float) -> None:
        """Cancel running calls; publishes get this many seconds to finish."""
        if self._made is not None:
            await self._made.close(timeout)

    async def publish(self, publish: Publish, deadline: float, certain: bool) -> Acked | None:
        """Publish in one request, after the publishes that were called before.

        A plain HIP-56 peer does not acknowledge publishes on a socket, but answers a request.
        Returns None without an HTTP API, which is checked unless it is `certain`.
        """
        messages, first, now = publish.messages, publish.messages[0], self._clock.now
        try:
            async with asyncio.timeout(deadline - now()):
                await self._order.acquire()
        except TimeoutError:
            topic, id = (None, None) if publish.batch else (first.topic, first.id)
            raise OperationTimeout(topic=topic, id=id) from None
        try:
            # Without an API, the rest of the time is for the connection.
            if not certain and not await self._is_there(first.topic, (deadline - now()) / 2):
                return None
            if not self._driver.options.echo:
                # Publishes that wait here are not sent, so the session does not count them.
                self._driver.deliveries.remember_own(messages, 0)
            left = deadline - now()
            if publish.batch:
                results = await (await self._loaded()).publish_many(messages, timeout=left)
            else:
                results = [await (await self._loaded()).publish(first, timeout=left)]
        finally:
            self._order.release()
        return Acked(tuple(results))

    async def _is_there(self, topic: str, seconds: float) -> bool:
        """Check once, with a read-only request that every HIP-56 server supports."""
        if self._found or self._clock.now() < self._ask_again_at:
            return self._found
        call = rest_calls.history(topic, limit=1)
        try:
            await (await self._loaded()).perform(call, timeout=seconds, attempts=1)
            self._found = True
        except PubSubError as error:
            self._found = isinstance(error, PermissionDenied)
            self._ask_again_at = self._clock.now() + _ASK_AGAIN
        return self._found

    async def presence(self, topic: str, *, timeout: Duration | None) -> list[PresenceMember]:
        """See ``PubSubClient.presence``."""
        return await self._perform(rest_calls.presence(validate_topic(topic)), timeout)

    async def occupancy(self, topic: str, *, timeout: Duration | None) -> Occupancy:
        """See ``PubSubClient.occupancy``; counted here if the server does not count members."""
        try:
            return await self._perform(rest_calls.occupancy(validate_topic(topic)), timeout)
        except NotFound:
            return occupancy_of(await self.presence(topic, timeout=timeout))

    async def topics(
        self, prefix: str | None, *, limit: int | None, timeout: Duration | None
    ) -> list[TopicInfo]:
        """See ``PubSubClient.topics``."""
        if prefix is not None:
            check_text("prefix", prefix, "the beginning of topics")
        if limit is not None:
            check_whole("limit", limit, 1, 1_000, "a number of topics")
        return (await self._perform(rest_calls.topics(prefix, limit), timeout)).topics

    async def _perform(self, call: rest_calls.Call[T], timeout: Duration | None) -> T:
        self._driver.check_open()
        return await (await self._loaded()).perform(call, timeout=self._driver.timeout_of(timeout))

    async def positions(
        self,
        topics: Topics,
        *,
        after: Mapping[str, int] | None,
        at: Since | None,
        wait: Duration,
        timeout: Duration | None,
    ) -> PositionList:
        """See ``PubSubClient.positions``."""
        self._driver.check_open()
        names = pattern_list(topics)
        known = None if after is None else position_map(after)
        wait_ms = round(check_seconds("wait", wait, 0.0, _WAIT_MAX) * 1000)
        seconds = self._driver.timeout_of(timeout)
        moment = None if at is None else unix_ms(at, self._clock.wall_ms(), "at")
        return await (await self._loaded()).positions(
            names, after=known, at=moment, wait_ms=wait_ms, timeout=seconds
        )

    def history(
        self,
        topic: str,
        *,
        since: Since | None,
        before: Before | None,
        after: int | None,
        limit: int | None,
        timeout: Duration | None,
    ) -> AsyncIterator[Message]:
        """See ``PubSubClient.history``."""
        self._driver.check_open()
        validate_topic(topic)
        seconds = self._driver.timeout_of(timeout)
        start = None if since is None else unix_ms(since, self._clock.wall_ms())
        id, seq = (None, None) if before is None else page_end(before, topic)
        if after is not None:
            if before is not None:
                raise invalid(
                    "after", "cannot be used together with `before`", "Leave out one of them."
                )
            check_whole("after", after, low=0, high=SEQ_MAX, unit="a position")
        if limit is not None:
            check_whole("limit", limit, low=0, high=math.inf, unit="a number of messages")
        cursor = PageCursor(topic, start, id, seq, after)
        return self._pages(cursor, math.inf if limit is None else limit, seconds)

    async def _pages(
        self, start: PageCursor, left: float, seconds: float
    ) -> AsyncIterator[Message]:
        """Messages after a position; or the newest, read backwards and then yielded in order."""
        # The log of a topic is limited, and so are the pages kept. A message that is trimmed in the
        # meantime is the oldest and ends the reading.
        pages: list[Sequence[Message]] = []
        cursor = start
        while left > 0:
            call = cursor.call(int(min(left, self._driver.options.history_page)))
            try:
                page = await (await self._loaded()).perform(call, timeout=seconds)
            except NotFound:
                if not pages:
                    raise
                break
            moved = cursor.beyond(page)
            if moved is None:
                break
            cursor = moved
            left = left - len(page.messages) if page.has_more else 0
            if start.after is None:
                pages.append(page.messages)
            else:
                for message in page.messages:
                    yield message
        for messages in reversed(pages):
            for message in messages:
                yield message


class Operations:
    """The parts of a client in its event loop, and the operations that need several of them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.http = HttpApi(driver)
        self.publisher = Publisher(driver, self.http.publish)
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
        if driver.is_finished or not began:
            return False
        if driver.owner.is_foreign:  # the parent process still uses it
            return False
        if not driver.loop.is_closed():
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
