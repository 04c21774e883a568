"""Sends audit records over a network: queues them, and sends batches from one task.

A batch whose answer was lost is sent again, so a record may arrive twice, and none is lost while
the queue has room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from pubsub_server.backoff import Backoff
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH: Final = 500
SEND_WITHIN: Final = 10.0
"""Seconds after which a slow batch is logged."""
END_WITHIN: Final = 3.0
"""Seconds for sending waiting records at shutdown."""
CLOSE_WITHIN: Final = 2.0
AGAIN_AFTER: Final = 0.1
AGAIN_AT_MOST: Final = 5.0

_LOG: Final = logging.getLogger("pubsub_server.observe.audit")


class Carrier(Protocol):
    """Transports batches to their store.

    Attributes:
        name: Name of the store.
        patience: Timeout of a batch in seconds; it is then sent again.
    """

    name: str
    patience: float

    async def send(self, records: Sequence[bytes]) -> None:
        """Send a batch; raises any exception on failure."""
        ...

    def explain(self, error: Exception) -> str:
        """The reason of a failure for the log, without credentials and records."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class StreamSink:
    """An audit sink over a network. Create it inside a running event loop.

    Args:
        carrier: Transports the batches.
        capacity: Maximum waiting records; further ones are dropped and counted.

    Attributes:
        dropped: Records that were dropped because the queue was full, or that waited at the end.
    """

    def __init__(self, carrier: Carrier, capacity: int) -> None:
        self.dropped = 0
        self._carrier = carrier
        self._capacity = capacity
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._logged: set[str] = set()
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "audit log")
        self._tasks.keep(self._run)

    @property
    def waiting(self) -> int:
        """Number of records that wait to be sent."""
        return len(self._queue)

    def put(self, record: dict[str, object]) -> None:
        """Queues one record; never blocks."""
        if len(self._queue) >= self._capacity:
            self.dropped += 1
            return
        self._queue.append(exact_copy(orjson.dumps(record)))
        self._wake.set()

    async def close(self, seconds: float | None = None) -> None:
        """Sends waiting records for at most this long (`END_WITHIN`), and ends."""
        self._closing = True
        self._wake.set()
        self._tasks.begin_end()
        await self._tasks.wait(END_WITHIN if seconds is None else seconds)
        await self._tasks.stop()
        if self._queue:
            self.dropped += len(self._queue)
            _LOG.error("%d audit records were not sent before shutdown", len(self._queue))
            self._queue.clear()
        with contextlib.suppress(Exception):
            await self._carrier.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(AGAIN_AFTER, AGAIN_AT_MOST)
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            batch = [self._queue[index] for index in range(min(BATCH, len(self._queue)))]
            late = loop.call_later(SEND_WITHIN, self._complain, TimeoutError())
            try:
                async with asyncio.timeout(self._carrier.patience):
                    await self._carrier.send(batch)
            except Exception as error:
                self._complain(error)
                await backoff.wait()
                continue
            finally:
                late.cancel()
            backoff.reset()
            if self._logged:
                self._logged.clear()
                _LOG.info("%s accepts audit records again", self._carrier.name)
            for _ in batch:
                self._queue.popleft()

    def _complain(self, error: Exception) -> None:
        detail = self._carrier.explain(error)
        if detail not in self._logged:
            self._logged.add(detail)
            _LOG.warning("%s accepts no audit records: %s", self._carrier.name, detail)
