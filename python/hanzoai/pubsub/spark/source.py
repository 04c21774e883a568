"""The source: readers that plan by positions and read pages, and the checks before it."""

from __future__ import annotations

import logging
import time
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from hanzoai.pubsub.errors import InvalidOption, PermissionDenied, PubSubError
from hanzoai.pubsub.log_text import log_error
from hanzoai.pubsub.spark.bounds import beginnings, endings, places_at
from hanzoai.pubsub.spark.fetch import fetcher_of
from hanzoai.pubsub.spark.losses import DataLossError, Loss
from hanzoai.pubsub.spark.planning import (
    Offset,
    Range,
    Standing,
    advance,
    missing,
    ranges,
    read_offset,
    split,
)
from hanzoai.pubsub.spark.reading import read_ranges
from hanzoai.pubsub.spark.rows import SOURCE_SCHEMA
from hanzoai.pubsub.spark.source_config import (
    SOURCE_OPTIONS,
    SourceConfig,
    refuse,
    source_config,
)
from hanzoai.pubsub.spark.traces import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from hanzoai.pubsub.spark.fetch import Fetcher

logger = logging.getLogger("hanzoai.pubsub.spark")

# Since Spark 4.2; in earlier versions, a micro-batch reads all rows.
_LIMITS: Any = (
    import_module("pyspark.sql.streaming.datasource")
    if find_spec("pyspark.sql.streaming.datasource") is not None
    else None
)
_AVAILABLE_NOW: Any = object if _LIMITS is None else _LIMITS.SupportsTriggerAvailableNow


class Ranges(datasource.InputPartition):
    """The ranges of a task."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


def checked_schema(options: Mapping[str, str]) -> str:
    """Check the options of a source, and return its columns.

    Raises:
        InvalidOption: An option is missing, unknown or wrong; `field` names it.
        InvalidTopic: A topic or pattern is not valid.
    """
    source_config(options)
    return SOURCE_SCHEMA


def planned(options: Mapping[str, str], schema: StructType) -> SourceConfig:
    """Return the config of a source, after a check of the requested columns.

    Raises:
        InvalidOption: An option or a requested column is wrong; `field` names it.
        InvalidTopic: A topic or pattern is not valid.
    """
    config = source_config(options)
    if schema.simpleString() != _columns():
        raise InvalidOption(
            "This source has fixed columns.",
            remedy="Leave out schema(), and select columns after load().",
            field="schema",
        )
    return config


def _columns() -> str:
    columns = ",".join(column.lower().replace(" ", ":") for column in SOURCE_SCHEMA.split(", "))
    return f"struct<{columns}>"


def _report_losses(fetcher: Fetcher, config: SourceConfig, losses: Sequence[Loss]) -> None:
    """Raise an error for lost rows, or log them."""
    for loss in losses:
        reported = loss
        if loss.first <= loss.last:
            try:
                reported = loss._replace(
                    restarted=fetcher.page(loss.topic, loss.first - 1, 1).restarted
                )
            except PermissionDenied:
                raise
            except PubSubError as error:
                # The loss is certain even without its reason.
                logger.debug("cannot read the cause of the loss: %s", log_error(error))
        if config.fail_on_data_loss:
            raise DataLossError(reported)
        logger.warning("%s; continuing", reported)


class BatchSource(datasource.DataSourceReader):
    """Reads the retained rows of topics, between two positions of each."""

    def __init__(self, config: SourceConfig) -> None:
        refuse(config, "batch")
        self._config = config

    @brief(SOURCE_OPTIONS)
    def partitions(self) -> list[datasource.InputPartition]:
        """See `DataSourceReader`; runs on the driver."""
        config = self._config
        fetcher = fetcher_of(config.server)
        standings = fetcher.positions(config.topics, at=config.ending_timestamp)
        if config.ending_timestamp is not None:
            end = places_at(standings)
        else:
            end = endings(config.ending or "latest", standings)
        if config.starting_timestamp is not None:
            begin = places_at(fetcher.positions(config.topics, at=config.starting_timestamp))
        else:
            begin = beginnings(config.starting or "earliest", standings)
        end = {topic: last for topic, last in end.items() if begin.get(topic, last) < last}
        losses = [
            loss
            for topic in end
            if (loss := missing(topic, begin[topic], standings[topic])) is not None
        ]
        _report_losses(fetcher, config, losses)
        for loss in losses:
            begin[loss.topic] = loss.last
        found = ranges(Offset(begin), Offset(end))
        parts = split(found, tasks=config.min_partitions, most=config.max_rows_per_partition)
        return [Ranges(part) for part in parts]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """See `DataSourceReader`; runs in the task."""
        return _read(self._config, partition)


class StreamSource(datasource.DataSourceStreamReader, _AVAILABLE_NOW):  # type: ignore[misc]
    """Reads topics as they grow.

    Spark keeps one for planning while the query runs, and passes copies of another one to tasks.
    The first call reports errors, because Spark hides the errors of the constructor.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._made: SourceConfig | PubSubError
        try:
            self._made = planned(options, schema)
            refuse(self._made, "stream", limits=_LIMITS is not None)
        except PubSubError as error:
            self._made = error
        self._seen: dict[str, Standing] | None = None
        self._fetched_at = 0.0
        self._gone: dict[str, float] = {}
        self._target: dict[str, int] | None = None
        self._turn = ""
        self._end: Offset | None = None
        self._planned: Offset | None = None
        self._absent: dict[str, int] = {}

    @property
    def _config(self) -> SourceConfig:
        if isinstance(self._made, PubSubError):
            raise self._made
        return self._made

    # ------------------------------------------------------------ planning, on the driver

    @brief(SOURCE_OPTIONS)
    def initialOffset(self) -> dict[str, Any]:
        """See `DataSourceStreamReader`."""
        config = self._config
        standings = fetcher_of(config.server).positions(config.topics, at=config.starting_timestamp)
        if config.starting_timestamp is not None:
            begin = places_at(standings)
        else:
            begin = beginnings(config.starting or "latest", standings)
        return Offset(begin, begin).as_json()

    @brief(SOURCE_OPTIONS)
    def getDefaultReadLimit(self) -> Any:
        """See `DataSourceStreamReader`."""
        most = self._config.max_offsets_per_trigger
        return _LIMITS.ReadAllAvailable() if most is None else _LIMITS.ReadMaxRows(most)

    @brief(SOURCE_OPTIONS)
    def prepareForTriggerAvailableNow(self) -> None:
        """See `SupportsTriggerAvailableNow`."""
        self._fetch_positions(0.0)
        self._target = {topic: each.last for topic, each in (self._seen or {}).items()}

    @brief(SOURCE_OPTIONS)
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """See `DataSourceStreamReader`. Spark before 4.2 passes no arguments."""
        if start is None and self._end is None:
            # The end of the previous batch is unknown. It is not the initial offset, which Spark
            # before 4.2 requests after this one, or for a batch that it repeats.
            self._fetch_positions(0.0)
            self._end = self._newest()
            return self._end.as_json()
        if start is None:
            begin = self._end or Offset()
        else:
            begin = read_offset(start)
            # The topics that the end of a repeated batch lacks have left the offsets.
            self._absent = {}
        most = getattr(limit, "max_rows", None)
        if self._seen is None:
            self._fetch_positions(0.0)
        end = self._advance(begin, most)
        if self._target is None:
            end = self._newer(begin, end, most)
        self._absent = {t: at for t, at in self._absent.items() if t not in end.read}
        self._end = end
        return end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """See `DataSourceStreamReader`: the newest offset, for the progress of the query."""
        return None if self._seen is None else self._newest().as_json()

    @brief(SOURCE_OPTIONS)
    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[datasource.InputPartition]:
        """See `DataSourceStreamReader`: a function of the offsets and the options.

        If the end was not planned from the start, also of what the server lost between them.
        """
        config = self._config
        begin, last = read_offset(start), read_offset(end)
        if last != self._planned:
            begin = self._skip_losses(begin, last)
        found = ranges(begin, last)
        parts = split(found, tasks=config.min_partitions, most=config.max_rows_per_partition)
        return [Ranges(part) for part in parts]

    def _skip_losses(self, start: Offset, end: Offset) -> Offset:
        """Return the start of a batch after the rows that are lost, and report these.

        Spark before 4.2 requests the end of the first batch without its start. Another log may
        have started between them, billions of positions later.
        """
        fetcher = fetcher_of(self._config.server)
        seen = fetcher.positions(self._config.topics)
        losses: list[Loss] = []
        for topic, known in start.read.items():
            last, standing = end.read.get(topic), seen.get(topic)
            if last is None:
                # Its log is gone. If another one starts, rows between them may be lost: the next
                # offset has this position again.
                self._absent[topic] = known
            elif topic in end.begin:
                continue
            elif standing is not None and standing.last:
                if (loss := missing(topic, known, standing)) is not None:
                    losses.append(loss)
            elif known < last:
                losses.append(Loss(topic, known + 1, last))
        _report_losses(fetcher, self._config, losses)
        return Offset({**start.read, **{loss.topic: loss.last for loss in losses}})

    def _newest(self) -> Offset:
        seen = self._seen or {}
        return Offset({topic: each.last for topic, each in seen.items() if each.last})

    def _newer(self, begin: Offset, end: Offset, most: int | None) -> Offset:
        """Return the end of the next batch; waits for news if there is nothing to read."""
        poll = self._config.poll
        now = time.monotonic()
        if end is not begin:
            if now - self._fetched_at <= poll:
                return end
            self._fetch_positions(0.0)
            return self._advance(begin, most)
        self._fetch_positions(poll)
        end = self._advance(begin, most)
        left = now + poll - time.monotonic()
        if end is begin and left > 0:
            # Limits the request rate to a server that does not delay its answers.
            time.sleep(left)
        return end

    def _fetch_positions(self, wait: float) -> None:
        """Request the positions of the topics; waits up to the given seconds for news."""
        config = self._config
        known = None if self._seen is None else {t: each.last for t, each in self._seen.items()}
        fetcher = fetcher_of(config.server)
        if wait and known is not None:
            self._seen = fetcher.positions(config.topics, after=known, wait=wait)
        else:
            self._seen = fetcher.positions(config.topics)
        self._fetched_at = time.monotonic()

    def _advance(self, start: Offset, most: int | None) -> Offset:
        assert self._seen is not None
        # At once: after another restart, only the offsets know these positions.
        back = self._absent
        begin = Offset({**start.read, **back}, start.begin) if back else start
        found = advance(
            begin,
            self._seen,
            most=most,
            target=self._target,
            forgotten=self._forgotten(begin.read, self._seen),
            turn=self._turn,
        )
        if found.losses:
            _report_losses(fetcher_of(self._config.server), self._config, found.losses)
        self._turn = found.turn
        end = found.end
        if back:
            # The start that Spark stored lacks these topics.
            end = Offset(end.read, {**back, **end.begin})
        self._planned = end
        return end

    def _forgotten(self, known: Iterable[str], seen: Mapping[str, Standing]) -> list[str]:
        """Those of the known topics that have had no log for long."""
        now = time.monotonic()
        absent = [t for t in known if (each := seen.get(t)) is None or each.last == 0]
        self._gone = {topic: self._gone.get(topic, now) for topic in absent}
        return [topic for topic, since in self._gone.items() if now - since > self._config.forget]

    # ------------------------------------------------------------ reading, in tasks

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """See `DataSourceStreamReader`; runs in the task."""
        return _read(self._config, partition)


def _read(config: SourceConfig, partition: datasource.InputPartition) -> Iterator[Any]:
    # Spark creates a partition if there is none.
    if isinstance(partition, Ranges):
        with brief(SOURCE_OPTIONS):
            yield from read_ranges(fetcher_of(config.server), config, partition.ranges)
