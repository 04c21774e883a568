"""Publishes the rows of a task in batches, and returns when all are acknowledged."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.errors import PayloadTooLarge, PermissionDenied, PubSubError, from_code
from hanzoai.pubsub.spark.config import check_config
from hanzoai.pubsub.spark.ids import numbering
from hanzoai.pubsub.spark.messages import Encoder, Messages, letter, together
from hanzoai.pubsub.spark.pace import Pace
from hanzoai.pubsub.spark.records import check_columns, chunks
from hanzoai.pubsub.spark.sender import sender_of
from hanzoai.pubsub.spark.stats import PublishStats, log_stats
from hanzoai.pubsub.spark.traces import brief
from hanzoai.pubsub.spark.wording import restated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.messages import Encoded, Message
    from hanzoai.pubsub.spark.records import Chunk, Record
    from hanzoai.pubsub.spark.sender import Sender, Sent

ARROW_SCHEMA: Final = (
    "part BIGINT, attempt BIGINT, rows BIGINT, duplicates BIGINT, dead_letters BIGINT,"
    " dropped BIGINT, batches BIGINT, retries BIGINT, bytes BIGINT, seconds DOUBLE"
)
"""Schema of the result of `publish_arrow`, for `mapInArrow`."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a Spark job that runs this code.

    Attributes:
        partition: Partition of the task.
        attempt: Number of the attempt, from 0.
        stage: Stage, the same for all attempts.
        batch: Query and micro-batch, the same after a restart from the checkpoint; None outside.
        call: Distinguishes this call from earlier ones of the same attempt; empty for the first.
    """

    partition: int = 0
    attempt: int = 0
    stage: int = 0
    batch: str | None = None
    call: str = ""


class _Calls:
    """Counts the calls with each config in the attempt that this process runs."""

    def __init__(self) -> None:
        self._attempt = -1
        self._numbers: dict[str, count[int]] = {}

    def earlier(self, attempt: int, job: str) -> int:
        """Return the number of earlier calls, and count this one.

        Args:
            attempt: Spark's id of the attempt.
            job: `job` of the config.
        """
        if attempt != self._attempt:
            self._attempt, self._numbers = attempt, {}
        return next(self._numbers.setdefault(job, count()))


_calls = _Calls()


def current_task(config: PubSubConfig) -> Task:
    """Return the task that this process runs; outside of Spark, a new one for each call."""
    pyspark = sys.modules.get("pyspark")
    context: Any = pyspark.TaskContext.get() if pyspark is not None else None
    if context is None:
        return Task(call=uuid.uuid4().hex)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Task(
        context.partitionId(),
        context.attemptNumber(),
        context.stageId(),
        f"{query}:{batch}" if query is not None and batch is not None else None,
        str(_calls.earlier(context.taskAttemptId(), config.job) or ""),
    )


def namespace_of(config: PubSubConfig, given: str | None, task: Task) -> str:
    """Return the namespace of content ids, the same for all attempts of a task.

    Args:
        config: Its `id_namespace` is part of the name; its `job` is the last resort.
        given: Namespace from the caller.
        task: Its micro-batch is part of the name, since another one may have equal rows. Its call
            is part of the name only without an `id_namespace` and a namespace from the caller.
    """
    named = [part for part in (config.id_namespace, given) if part]
    if named:
        parts = [*named, task.batch]
    else:
        parts = [task.batch or f"{config.job}:{task.stage}", task.call]
    return ":".join([part for part in parts if part])


def publish_partition(
    rows: Iterable[Any], config: PubSubConfig, *, namespace: str | None = None
) -> PublishStats:
    """Publish the rows of a partition; returns when the server has acknowledged each of them.

    Args:
        rows: `Row`, dict, or `pyarrow.RecordBatch`, with `data` (JSON text, or a value that is
            converted to JSON) and, as needed, `topic`, `type`, `ttl` and `id`.
        config: Configuration of the server and of publishing.
        namespace: Distinguishes this job from others in content ids: rows that are published again
            with the same namespace are published once. Default: one for each stage of a job or each
            micro-batch; another one for each further call of a task, and outside of Spark.

    Raises:
        PubSubError: A row cannot be published and `on_error` is `fail`, or the server is
            unreachable or rejects the token for all retries.
    """
    check_config(config)
    task = current_task(config)
    run = _Run(config, namespace_of(config, namespace, task), task)
    return run.publish(rows)


def foreach_partition(
    config: PubSubConfig, *, namespace: str | None = None
) -> Callable[[Iterable[Any]], None]:
    """Return a function for `df.foreachPartition` that publishes each partition."""
    check_config(config)
    return partial(_each_partition, config=config, namespace=namespace)


def foreach_batch(config: PubSubConfig, name: str) -> Callable[[Any, int], None]:
    """Return a function for `writeStream.foreachBatch` that publishes each micro-batch.

    Args:
        config: Configuration of the server and of publishing.
        name: Distinguishes this publish from others of the same query.
    """
    check_config(config)
    return partial(_each_batch, config=config, name=name)


def publish_arrow(
    config: PubSubConfig, *, namespace: str | None = None
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for `df.mapInArrow(publish_arrow(config), ARROW_SCHEMA)`.

    The result has one row per task, with its counters.

    Each action publishes the rows again.
    """
    check_config(config)
    return partial(_arrow, config=config, namespace=namespace)


@brief()
def _each_partition(rows: Iterable[Any], config: PubSubConfig, namespace: str | None) -> None:
    publish_partition(rows, config, namespace=namespace)


def _each_batch(frame: Any, batch: int, config: PubSubConfig, name: str) -> None:
    with brief():
        # Here, not in each attempt of each task.
        check_columns(frame.columns)
    # Not foreachPartition: a TIMESTAMP has no time zone in a Row of a task.
    frame.mapInArrow(publish_arrow(config, namespace=f"{name}:{batch}"), ARROW_SCHEMA).collect()


def _arrow(batches: Iterable[Any], config: PubSubConfig, namespace: str | None) -> Iterator[Any]:
    pyarrow: Any = import_module("pyarrow")
    with brief():
        found = asdict(publish_partition(batches, config, namespace=namespace))
    found = {"part": found.pop("partition"), **found}
    yield pyarrow.RecordBatch.from_pydict(
        {name: [value] for name, value in found.items()},
        schema=pyarrow.schema(
            [(name, pyarrow.float64() if name == "seconds" else pyarrow.int64()) for name in found]
        ),
    )


class _Batch:
    """Messages of a request, and the places of their rows."""

    __slots__ = ("_origins", "messages")

    def __init__(self) -> None:
        self.messages = Messages()
        self._origins: list[tuple[Chunk, Sequence[int]]] = []

    def add(self, chunk: Chunk, places: Sequence[int], messages: Messages) -> None:
        """Add messages of the rows at these places of a chunk."""
        self.messages.extend(messages)
        self._origins.append((chunk, places))

    def add_one(self, chunk: Chunk, place: int, message: Message) -> None:
        """Add the message of the row at this place of a chunk."""
        self.messages.add(message)
        self._origins.append((chunk, (place,)))

    def record(self, place: int) -> Record:
        """Return the row of a message."""
        for chunk, places in self._origins:
            if place < len(places):
                return chunk.record(places[place])
            place -= len(places)
        raise IndexError(place)


class _Run:
    """The publish of one partition."""

    def __init__(self, config: PubSubConfig, namespace: str, task: Task) -> None:
        self._config = config
        self._task = task
        self._encoder = Encoder(config, numbering(config.ids, namespace, task.partition))
        self._letter_id = numbering("content", f"{namespace}\0dead", task.partition)
        self._pace = Pace(config.max_rows_per_second)
        # A request with the rows of several seconds would be a burst after a long silence.
        self._most = self._pace.most(config.batch_size)
        self._stats = PublishStats(task.partition, task.attempt)
        self._stop = threading.Event()
        self._made: Sender | None = None
        self._batch = _Batch()
        self._size = 0
        self._letters: deque[Message] = deque()
        self._flying: deque[tuple[_Batch, Future[Sent]]] = deque()

    def publish(self, rows: Iterable[Any]) -> PublishStats:
        begin = time.perf_counter()
        stats, config = self._stats, self._config
        try:
            for chunk in chunks(rows, self._most, config.max_batch_bytes):
                encoded = self._encoder.encode_all(chunk)
                for place, error in encoded.refused:
                    self._bad(chunk.record(place), error)
                self._add(chunk, encoded)
            self._flush()
            while self._flying:
                self._land()
            self._send_letters()
        except BaseException as error:
            self._stop.set()
            for _, future in self._flying:
                future.cancel()
            if isinstance(error, PermissionDenied):
                # The server may answer a batch with 200, and refuse only some rows.
                self._sender.forget_token()
            raise
        stats.seconds = time.perf_counter() - begin
        if config.log_stats:
            log_stats("partition published: %s", stats)
        return stats

    def _add(self, chunk: Chunk, encoded: Encoded) -> None:
        config = self._config
        if len(self._batch.messages) >= self._most:
            self._flush()
        messages = encoded.messages
        size = sum(messages.sizes) + len(messages)
        if (
            len(self._batch.messages) + len(messages) <= self._most
            and self._size + size <= config.max_batch_bytes
        ):
            self._batch.add(chunk, encoded.places, messages)
            self._size += size
            return
        for place, message in zip(encoded.places, messages.one_by_one(), strict=True):
            size = message.size + 1
            if self._batch.messages and (
                len(self._batch.messages) >= self._most
                or self._size + size > config.max_batch_bytes
            ):
                self._flush()
            self._batch.add_one(chunk, place, message)
            self._size += size

    @property
    def _sender(self) -> Sender:
        # Many partitions are empty: these open no connection.
        if self._made is None:
            self._made = sender_of(self._config)
        return self._made

    def _flush(self) -> None:
        if not self._batch.messages:
            return
        batch, self._batch = self._batch, _Batch()
        self._stats.bytes += self._size
        self._size = 0
        wait = self._pace.take(len(batch.messages), time.monotonic())
        if wait > 0:
            self._stop.wait(wait)
        while len(self._flying) >= self._config.max_in_flight:
            self._land()
        self._flying.append((batch, self._sender.submit(batch.messages, self._stop)))

    def _land(self) -> None:
        batch, future = self._flying.popleft()
        sent = future.result()
        self._count(sent)
        for place, error in sent.refused:
            record = batch.record(place)
            self._bad(record, _at_column(error, record, record.type or self._config.type))

    def _count(self, sent: Sent) -> None:
        self._stats.rows += sent.accepted
        self._stats.duplicates += sent.duplicates
        self._stats.retries += sent.retries
        self._stats.batches += 1

    def _bad(self, record: Record, error: PubSubError) -> None:
        config = self._config
        if isinstance(error, PayloadTooLarge) and config.on_oversize == "drop":
            self._stats.dropped += 1
            return
        if config.dead_letter_topic is None:
            raise _of_row(error, record)
        self._letters.append(letter(record, error, config, self._letter_id))
        if len(self._letters) >= config.batch_size:
            self._send_letters()

    def _send_letters(self) -> None:
        letters, self._letters = self._letters, deque()
        while letters:
            part: list[Message] = []
            size = 0
            while letters and (not part or size + letters[0].size < self._config.max_batch_bytes):
                part.append(letters.popleft())
                size += part[-1].size
            sent = self._sender.send(together(part), self._stop)
            for _, error in sent.refused:
                # The row was rejected for another reason before: its letter exists.
                if error.code != "conflict":
                    raise _of_letter(error)
            self._stats.dead_letters += len(part)
            self._stats.retries += sent.retries


_COLUMNS: Final = {"forbidden": "topic", "conflict": "id"}
"""Columns that errors of the server are about; other errors are about `data`."""


_SHOWN_MAX: Final = 80
"""Maximum characters of a value in an error."""


def _of_row(error: PubSubError, record: Record) -> PubSubError:
    """Return the error with the topic and the id of its row, by which a user finds the row."""
    found = {"topic": record.topic, "id": record.id}
    # An error quotes a value, or has the topic at its end: see `PubSubError`.
    shown = [
        f"{name} {value[:_SHOWN_MAX]!a}"
        for name, value in found.items()
        if isinstance(value, str)
        and f"{value[:_SHOWN_MAX]!a}" not in error.message
        and f"({name} {value})" not in error.message
    ]
    if not shown:
        return error
    return restated(error, f"{error.message.removesuffix('.')} ({', '.join(shown)}).")


def _of_letter(error: PubSubError) -> PubSubError:
    """Return the rejection of a dead letter, which is not about the row: `on_error` caused it."""
    message = f"`on_error`: the dead letter of a row was rejected: {error.message}"
    return restated(error, message, field="on_error")


def _at_column(error: PubSubError, record: Record, kind: object) -> PubSubError:
    """Return a rejection by the server with the name of the column, like those of the encoder.

    Args:
        error: The rejection.
        record: The row.
        kind: Type of the message, from the row or the config.
    """
    code, message, remedy = error.code, error.message, error.remedy
    if code == "invalid_frame" and message.startswith("not valid JSON"):
        # The encoder wrote the request around the row's data: a number of it is rejected, such as
        # 1e999. The place in the request is not one in the row.
        code, message = "invalid_payload", message.partition(" at character ")[0]
        remedy = "Write numbers beyond 1.8e308 as texts, or leave them out."
    column = _COLUMNS.get(code, "data")
    if str(kind).startswith("presence."):  # the server accepts no such message over HTTP
        column = "type"
    which = f" ({record.id!a})" if column == "id" else ""
    return from_code(
        code,
        f"Column `{column}`: {message.removesuffix('.')}{which}.",
        remedy=remedy,
        topic=error.topic,
        field=column,
    )
