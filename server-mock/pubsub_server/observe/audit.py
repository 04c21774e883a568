"""The audit log: subscriptions and publishes on sensitive topics.

HIP-56 Security 9, H-151. One JSON object per line, appended by a separate thread, so that a slow
disk does not delay clients. A record has no payload and no token. The file can be moved at any
time: it is opened again when the path has another file, and on `reopen`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from pubsub_server.observe.topic_filter import TopicFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import AuditAction, Caller

BATCH: Final = 1_000
"""Maximum records of one write."""
LOG_EVERY: Final = 60.0
"""Seconds between two log lines about a failure to write."""

_LOG: Final = logging.getLogger("pubsub_server.observe.audit")


class AuditSink(Protocol):
    """A destination of records: a file here, a stream in `audit_streams`."""

    def put(self, record: dict[str, object]) -> None:
        """Adds one record; never blocks."""
        ...


class AuditLog:
    """Selects operations to record, and writes them to sinks.

    Args:
        patterns: Audited topics; operations on others are not recorded.
        sinks: Each receives every record.
        clock: Unix seconds.
    """

    def __init__(
        self, patterns: Iterable[str], *sinks: AuditSink, clock: Callable[[], float] = time.time
    ) -> None:
        self._topics = TopicFilter(patterns)
        self._sinks = sinks
        self._clock = clock

    def record(
        self,
        action: AuditAction,
        identity: Identity,
        topic: str,
        *,
        client_id: str | None,
        message_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Records one operation; `refused` is the error code if it was denied."""
        if topic not in self._topics:
            return
        self._put(action, refused, identity, topic=topic, client_id=client_id, id=message_id)

    def auth(
        self,
        identity: Identity | None,
        caller: Caller | None,
        *,
        client_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Records that a token was accepted or rejected; see `interfaces.Audit`."""
        address, request_id = (None, None) if caller is None else caller
        self._put(
            "auth",
            refused,
            identity,
            client_id=client_id,
            address=address,
            request_id=request_id,
        )

    def cut(
        self,
        identity: Identity,
        caller: Caller | None,
        *,
        client_id: str,
        refused: str | None = None,
    ) -> None:
        """Records a request to close a connection; see `interfaces.Audit`."""
        address, request_id = (None, None) if caller is None else caller
        self._put(
            "cut", refused, identity, client_id=client_id, address=address, request_id=request_id
        )

    def _put(
        self, action: str, refused: str | None, identity: Identity | None, **more: str | None
    ) -> None:
        record: dict[str, object] = {
            "time": round(self._clock() * 1000),
            "event": action,
            "outcome": "denied" if refused else "ok",
        }
        if refused:
            record["code"] = refused
        if identity is not None:
            record["user_id"] = identity.user_id
            record["kind"] = identity.kind
            if identity.key_id:
                record["key_id"] = identity.key_id
        record.update({name: value for name, value in more.items() if value is not None})
        for sink in self._sinks:
            sink.put(record)


class FileSink:
    """Appends records to a file, from a thread.

    Args:
        file: Created with mode 0600 if it does not exist.
        capacity: Maximum waiting records; further ones are dropped and counted.

    Attributes:
        dropped: Records that found the queue full or could not be written.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, file: Path, capacity: int = 10_000) -> None:
        self.dropped = 0
        self._file = file
        self._queue: queue.Queue[bytes | None] = queue.Queue(capacity)
        self._reopen = threading.Event()
        self._descriptor = self._open()
        self._torn = False
        self._failing_since: float | None = None
        # Records that the thread writes now.
        self._writing = 0
        self._slow_logged = -LOG_EVERY
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def put(self, record: dict[str, object]) -> None:
        """Queues one record; never blocks."""
        try:
            self._queue.put_nowait(orjson.dumps(record) + b"\n")
        except queue.Full:
            self.dropped += 1
            now = time.monotonic()
            if now - self._slow_logged >= LOG_EVERY:
                self._slow_logged = now
                _LOG.error(
                    "the disk of audit_file %s is too slow, records are lost: use a faster disk,"
                    " or record fewer topics (audit_topics)",
                    self._file,
                )

    @property
    def waiting(self) -> int:
        """Number of records that wait to be written."""
        return self._queue.qsize()

    def reopen(self) -> None:
        """Opens the file again before the next record, as after a rotation."""
        self._reopen.set()

    def close(self, timeout: float = 5.0) -> None:
        """Writes waiting records within a few seconds, and ends."""
        if not self._thread.is_alive():
            return
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
            self._thread.join(timeout)
        if self._thread.is_alive():
            # The thread may have taken the end marker.
            with self._queue.mutex:
                left = self._writing + sum(each is not None for each in self._queue.queue)
            _LOG.error(
                "audit_file %s: %d records were not written before shutdown", self._file, left
            )

    def _open(self) -> int:
        return os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            lines: list[bytes] = []
            while item is not None:
                lines.append(item)
                if len(lines) == BATCH:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if lines:
                self._writing = len(lines)
                self._write(lines)
                self._writing = 0
            if item is None:
                os.close(self._descriptor)
                return

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        written = 0
        try:
            if self._moved():
                fresh = self._open()
                os.close(self._descriptor)
                self._descriptor = fresh
                self._torn = False
            if self._torn:
                # End a partial line, so that it does not corrupt the next record.
                os.write(self._descriptor, b"\n")
                self._torn = False
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            self.dropped += len(lines) - data.count(b"\n", 0, written)
            self._torn = self._torn or (written > 0 and data[written - 1 : written] != b"\n")
            self._failed(error)
        else:
            if self._failing_since is not None:
                self._failing_since = None
                _LOG.warning("audit_file %s is writable again", self._file)

    def _failed(self, error: OSError) -> None:
        now = time.monotonic()
        if self._failing_since is None or now - self._failing_since >= LOG_EVERY:
            self._failing_since = now
            _LOG.error(
                "cannot write audit_file %s, records are lost: %s",
                self._file,
                error.strerror,
            )

    def _moved(self) -> bool:
        if self._reopen.is_set():
            self._reopen.clear()
            return True
        try:
            there = self._file.stat()
        except OSError:
            return True
        ours = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)
