"""Webhooks: posts events of certain topics to other services, in signed batches.

Body: `{"events": [{"event", "topic", "time", "data"}]}`. Signed according to Standard Webhooks: the
headers `webhook-id` (the same for every attempt), `webhook-timestamp` (Unix seconds) and
`webhook-signature: v1,BASE64(HMAC-SHA256(secret, id.timestamp.body))`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections import deque
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from pubsub_server.observe.topic_filter import TopicFilter
from pubsub_server.settings.entries import signing_key
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.shared.failure_texts import http_failure
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.interfaces import HookEvent
    from pubsub_server.settings.config import Settings
    from pubsub_server.settings.entries import Webhook

MAX_BACKOFF: Final = 60.0
"""Maximum seconds between two attempts."""
QUEUE_BYTES: Final = 67_108_864
"""Maximum bytes of the events that wait for one receiver."""
BATCH_BYTES: Final = 1_000_000
"""Maximum bytes of the events of one request, unless one event is larger.

Many servers reject a body of more than 1 MiB by default.
"""
SMALLER_SECONDS: Final = 600.0
"""Seconds after the last 413 for which batches stay smaller: a wrong limit may be corrected."""
LOG_EVERY: Final = 60.0
"""Seconds between two log lines about the same problem of a receiver."""

_LOG: Final = logging.getLogger("pubsub_server.observe.webhooks")
_AGAIN: Final = frozenset({408, 425, 429})
_TOO_LARGE: Final = "HTTP 413"
_RANDOM: Final = secrets.SystemRandom()


class Receiver:
    """One receiver: its queue and the task that posts from it, in order.

    Attributes:
        dropped: Events that were dropped because the queue was full, after the last attempt, or at
            shutdown.
        delivered: Events that the receiver accepted.
    """

    def __init__(
        self,
        hook: Webhook,
        settings: Settings,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.dropped = 0
        self.delivered = 0
        self._hook = hook
        url = urlsplit(hook.url)
        # The query may contain a secret.
        self._place = f"{url.scheme}://{url.netloc}{url.path}"
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._topics = TopicFilter(hook.topics)
        self._events = frozenset(hook.events)
        self._key = signing_key(hook.secret.get_secret_value())
        # Each event as JSON.
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._batch_bytes = BATCH_BYTES
        # When a batch was last too large, in seconds of `time.monotonic`.
        self._rejected = 0.0
        # Events of the current request.
        self._posting = 0
        # Events dropped since the last log line about them.
        self._unlogged = 0
        # By problem: when it may be logged again, in seconds of `time.monotonic`.
        self._log_again_at: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._closing = False

    def wants(self, event: HookEvent, topic: str) -> bool:
        """Whether this receiver requested the event."""
        return event in self._events and topic in self._topics

    def put(self, event: bytes) -> None:
        """Queues one event, or drops it if the queue is full."""
        size = self._size + len(event)
        if len(self._queue) >= self._settings.webhook_queue or size > QUEUE_BYTES:
            self._drop(1, "its queue is full")
            return
        self._queue.append(event)
        self._size = size
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of waiting events."""
        return len(self._queue)

    def finish(self) -> None:
        """Lets `run` end once the queue is empty."""
        self._closing = True
        self._wake.set()

    def give_up(self) -> None:
        """Drops what is left, after `run`."""
        left = len(self._queue) + self._posting
        if left:
            self.dropped += left
            self._queue.clear()
            _LOG.error("undelivered events for %s at shutdown: %d", self._place, left)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Posts queued events until `finish`."""
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            events = self._take_batch()
            size = self._posting = len(events)
            failure = await self._deliver(session, b'{"events":[%b]}' % b",".join(events))
            self._posting = 0
            if failure is None:
                self.delivered += size
                if self._unlogged:
                    _LOG.warning(
                        "the webhook %s accepts requests; further events dropped before: %d",
                        *(self._place, self._unlogged),
                    )
                    self._unlogged = 0
            elif failure.startswith(_TOO_LARGE) and size > 1:
                total = sum(map(len, events))
                self._batch_bytes = total // 2
                self._rejected = time.monotonic()
                self._queue.extendleft(reversed(events))
                self._size += total
                _LOG.warning(
                    "the webhook %s accepts no request of %d bytes; sending smaller ones",
                    *(self._place, total),
                )
            else:
                self._drop(size, failure)

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        self._unlogged += count
        if self._may_log("drops"):
            _LOG.warning("the webhook %s: %s; events dropped: %d", self._place, why, self._unlogged)
            self._unlogged = 0

    def _may_log(self, problem: str) -> bool:
        now = time.monotonic()
        is_due = now >= self._log_again_at.get(problem, now)
        if is_due:
            self._log_again_at[problem] = now + LOG_EVERY
        return is_due

    def _take_batch(self) -> list[bytes]:
        if time.monotonic() - self._rejected > SMALLER_SECONDS:
            self._batch_bytes = BATCH_BYTES
        events = [self._queue.popleft()]
        total = len(events[0])
        while self._queue and len(events) < self._settings.webhook_batch:
            total += len(self._queue[0])
            if total > self._batch_bytes:
                break
            events.append(self._queue.popleft())
        self._size -= sum(map(len, events))
        return events

    async def _deliver(self, session: aiohttp.ClientSession, body: bytes) -> str | None:
        """Post a batch; returns the reason if it was given up, None if it was accepted."""
        identifier = "wh_" + secrets.token_hex(12)
        last = self._settings.webhook_attempts
        attempt, detail = 0, ""
        for attempt in range(1, last + 1):
            wait, detail = await self._post(session, identifier, body)
            if wait is None:
                return None
            if wait < 0 or attempt == last:
                break
            if self._may_log("failures"):
                _LOG.warning(
                    "the webhook %s: %s; sending the request again, up to %d times",
                    *(self._place, detail, last - 1),
                )
            backoff = self._settings.webhook_backoff / 1000 * 2 ** (attempt - 1)
            pause = min(MAX_BACKOFF, max(wait, backoff * (0.5 + self._jitter() / 2)))
            await asyncio.sleep(pause)
        return f"{detail} at attempt {attempt} of {last}"

    async def _post(
        self, session: aiohttp.ClientSession, identifier: str, body: bytes
    ) -> tuple[float | None, str]:
        """One attempt.

        Returns None on success, otherwise the minimum seconds to wait; a negative number means no
        further attempt.
        """
        stamp = str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "webhook-id": identifier,
            "webhook-timestamp": stamp,
            "webhook-signature": signature(self._key, identifier, stamp, body),
        }
        try:
            async with session.post(
                self._hook.url,
                # aiohttp writes a file in pieces, but bytes at once.
                data=BytesIO(body),
                headers=headers,
                allow_redirects=False,
            ) as response:
                detail = f"HTTP {response.status}"
                if 200 <= response.status < 300:
                    return None, detail
                if response.status in _AGAIN or response.status >= 500:
                    after = response.headers.get("Retry-After", "")
                    return float(after) if after.isdecimal() else 0.0, detail
                return -1.0, detail
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0.0, http_failure(error)
        except Exception as error:
            # For example a host name that cannot be encoded; later events must continue.
            return -1.0, type(error).__name__


class WebhookSender:
    """All receivers of a server. Runs from `start` to `close`.

    Args:
        settings: `webhooks`, and the limits of their queues and attempts.
        clock: Unix seconds.
        jitter: Random numbers from 0 to 1.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = _RANDOM.random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.receivers: Sequence[Receiver] = tuple(
            Receiver(hook, settings, clock, jitter) for hook in settings.webhooks
        )
        self._session: aiohttp.ClientSession | None = None
        self._tasks: Tasks | None = None

    @property
    def dropped(self) -> int:
        """Number of dropped events."""
        return sum(receiver.dropped for receiver in self.receivers)

    @property
    def delivered(self) -> int:
        """Number of delivered events."""
        return sum(receiver.delivered for receiver in self.receivers)

    @property
    def waiting(self) -> int:
        """Number of events that wait to be posted."""
        return sum(receiver.waiting for receiver in self.receivers)

    def start(self) -> None:
        """Starts posting."""
        if not self.receivers:
            return
        session = self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._settings.webhook_timeout / 1000),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "hanzo-pubsub"},
        )
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "webhooks")
        for receiver in self.receivers:
            self._tasks.keep(partial(receiver.run, session))

    def wants(self, event: HookEvent, topic: str) -> bool:
        """Whether a receiver requested this event; `notify` is called only in this case."""
        return any(receiver.wants(event, topic) for receiver in self.receivers)

    def notify(self, event: HookEvent, topic: str, body: bytes) -> None:
        """Queues one event; `body` is JSON: the envelope, or the user."""
        encoded = orjson.dumps(
            {
                "event": event,
                "topic": topic,
                "time": round(self._clock() * 1000),
                "data": orjson.Fragment(body),
            }
        )
        waiting = exact_copy(encoded)
        for receiver in self.receivers:
            if receiver.wants(event, topic):
                receiver.put(waiting)

    async def close(self, seconds: float = 5.0) -> None:
        """Posts waiting events for at most this long, and ends."""
        if self._tasks is not None:
            self._tasks.begin_end()
            for receiver in self.receivers:
                receiver.finish()
            await self._tasks.wait(seconds)
            await self._tasks.stop()
            for receiver in self.receivers:
                receiver.give_up()
        if self._session is not None:
            await self._session.close()


def signature(key: bytes, identifier: str, stamp: str, body: bytes) -> str:
    """The header `webhook-signature` of a request."""
    digest = hmac.new(key, f"{identifier}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()
