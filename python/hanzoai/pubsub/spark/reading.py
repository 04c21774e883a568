"""Reads ranges as Arrow batches in a task of a source, and reports every missing row."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.spark.fetch import IN_FLIGHT
from hanzoai.pubsub.spark.losses import DataLossError, Loss
from hanzoai.pubsub.spark.planning import UNKNOWN, Range
from hanzoai.pubsub.spark.rows import record_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from hanzoai.pubsub.spark.fetch import Fetcher, Page
    from hanzoai.pubsub.spark.planning import Standing
    from hanzoai.pubsub.spark.source_config import SourceConfig

logger = logging.getLogger("hanzoai.pubsub.spark")


def read_ranges(fetcher: Fetcher, config: SourceConfig, ranges: Iterable[Range]) -> Iterator[Any]:
    """Yield the rows of a task, as `pyarrow.RecordBatch`.

    A missing position has one of two causes: before the oldest retained message, it was trimmed or
    lost; after it, its `ttl` has passed.

    Args:
        fetcher: Sends the requests.
        config: Config of the source.
        ranges: Ranges to read.

    Raises:
        DataLossError: Rows are lost, and `failOnDataLoss` is true.
        PubSubError: The server is unreachable, or rejects a request.
    """
    task = _Task(fetcher, config)
    stop = threading.Event()
    todo = _windows(ranges, config.page_size, task)
    flying: deque[tuple[Range, Future[Page]]] = deque()

    def request(window: Range) -> tuple[Range, Future[Page]]:
        rows = window.last - window.after
        return window, fetcher.submit(window.topic, window.after, rows, stop)

    try:
        while True:
            while len(flying) < IN_FLIGHT and (window := next(todo, None)) is not None:
                flying.append(request(window))
            if not flying:
                return
            window, future = flying.popleft()
            page = future.result()
            end = _end(page, window)
            if end < window.last:
                flying.appendleft(request(window._replace(after=end)))
            messages = task.checked(window._replace(last=end), page)
            if messages:
                yield record_batch(messages)
    finally:
        stop.set()
        for _, future in flying:
            future.cancel()
        task.report_metrics()


def _windows(ranges: Iterable[Range], size: int, task: _Task) -> Iterator[Range]:
    """Split ranges into requests; skips positions that are known to be lost."""
    for topic, after, last in ranges:
        low = task.beginning(topic) if after == UNKNOWN else after
        while (low := task.skip_gone(topic, low, last)) < last:
            high = min(last, low + size)
            yield Range(topic, low, high)
            low = high


def _end(page: Page, window: Range) -> int:
    """The last position of a window that its page covers: a page ends earlier if it is large."""
    newest = _seq(page.messages[-1]) if page.messages else 0
    return newest if page.more and window.after < newest < window.last else window.last


class _Task:
    def __init__(self, fetcher: Fetcher, config: SourceConfig) -> None:
        self._fetcher = fetcher
        self._config = config
        self._standings: dict[str, Standing | None] = {}
        self._lost: dict[str, tuple[int, int, int]] = {}

    def beginning(self, topic: str) -> int:
        """Return the position before the first retained row, if the plan does not contain it."""
        standing = self._ask(topic)
        return 0 if standing is None else standing.first - 1

    def skip_gone(self, topic: str, after: int, last: int) -> int:
        """Return the position after which rows may be retained; those before need no request."""
        if topic not in self._standings:
            return after
        standing = self._standings[topic]
        # Without a log, nothing can be read.
        low = min(last, standing.first - 1) if standing and standing.last else last
        if low <= after:
            return after
        self._lose(Loss(topic, after + 1, low), low - after)
        return low

    def checked(self, window: Range, page: Page) -> list[dict[str, Any]]:
        """Return the messages of a window that are rows, after a check for missing ones."""
        messages = [each for each in page.messages if window.after < _seq(each) <= window.last]
        if len(messages) < window.last - window.after:
            self._explain(window, messages, page.restarted)
        types = self._config.types
        if types is not None:
            messages = [each for each in messages if each.get("type") in types]
        return messages

    def _explain(self, window: Range, messages: list[dict[str, Any]], restarted: bool) -> None:
        there = {_seq(each) for each in messages}
        absent = [seq for seq in range(window.after + 1, window.last + 1) if seq not in there]
        standing = self._standings.get(window.topic)
        if standing is None or absent[-1] >= standing.first:
            # Requested after the page: `first` is now after everything trimmed before the page.
            standing = self._ask(window.topic)
        whole = standing is not None and window.last <= standing.last
        lost = [seq for seq in absent if seq < standing.first] if standing and whole else absent
        if lost:
            self._lose(Loss(window.topic, lost[0], lost[-1], restarted), len(lost))

    def _ask(self, topic: str) -> Standing | None:
        standing = self._fetcher.positions((topic,)).get(topic)
        self._standings[topic] = standing
        return standing

    def _lose(self, loss: Loss, rows: int) -> None:
        if self._config.fail_on_data_loss:
            raise DataLossError(loss)
        first, last, before = self._lost.get(loss.topic, (loss.first, loss.last, 0))
        self._lost[loss.topic] = (min(first, loss.first), max(last, loss.last), before + rows)

    def report_metrics(self) -> None:
        """Log the missing rows."""
        for topic, (first, last, rows) in self._lost.items():
            logger.warning(
                "%d rows of '%s' are lost, between positions %d and %d", rows, topic, first, last
            )


def _seq(message: dict[str, Any]) -> int:
    seq: object = message.get("seq")
    return seq if isinstance(seq, int) else 0
