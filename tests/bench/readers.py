"""Many subscribers in one process, read by one epoll loop: `python -m tests.bench.readers`.

Reads JSON commands from standard input, one per line: `open`, `latency`, `drain`, `close`. An epoll
loop costs about two microseconds per delivery, so reading a thousand subscribers stays cheaper than
serving them.
"""

from __future__ import annotations

import json
import re
import resource
import select
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.dialects import END, dial
from tests.bench.processes import percentile
from tests.bench.wire import PIECE

if TYPE_CHECKING:
    import socket

_STAMP = re.compile(rb'"stamp":(\d+)\D')
_STAMP_BYTES = 40
"""The longest part of a timestamp and its key that a read can cut off."""


@dataclass
class Subscriber:
    """A connection, and the incomplete frame that it has read."""

    socket: socket.socket
    rest: bytes


class Readers:
    """Subscribers of one topic each."""

    def __init__(self) -> None:
        self._connections: dict[int, Subscriber] = {}
        self._poll = select.epoll()
        # One buffer for all: allocating one of this size costs ten times as much as a read.
        self._buffer = memoryview(bytearray(PIECE))

    def open(
        self, url: str, token: str, topics: list[str], count: int, dialect: str = "hanzo"
    ) -> dict[str, Any]:
        """Open connections, which use the topics in turn."""
        names = [topics[index % len(topics)] for index in range(count)]
        for connection, rest in dial(dialect, url, token, names):
            connection.setblocking(False)
            self._connections[connection.fileno()] = Subscriber(connection, rest)
            self._poll.register(connection, select.EPOLLIN)
        return {"open": len(self._connections)}

    def _read(self, connection: Subscriber) -> bytes:
        return bytes(self._buffer[: connection.socket.recv_into(self._buffer)])

    def latency(self, messages: int, skip: int) -> dict[str, Any]:
        """Read until every subscriber has every message; return latencies in milliseconds."""
        due = messages * len(self._connections)
        first = skip * len(self._connections)
        taken: list[float] = []
        deadline = time.monotonic() + 120
        while len(taken) < due:
            if time.monotonic() > deadline:
                return {"error": f"{len(taken)} of {due} deliveries in 120 s"}
            # Read all sockets and note the time before the data is parsed.
            read: list[tuple[Subscriber, bytes, int]] = []
            for fd, _ in self._poll.poll(1.0):
                connection = self._connections[fd]
                read.append((connection, self._read(connection), time.monotonic_ns()))
            for connection, data, now in read:
                if not data:
                    return {"error": f"a connection was closed after {len(taken)} deliveries"}
                data = connection.rest + data
                at = 0
                for stamp in _STAMP.finditer(data):
                    taken.append((now - int(stamp[1])) / 1e6)
                    at = stamp.end()
                connection.rest = data[max(at, len(data) - _STAMP_BYTES) :]
        counted = taken[first:]
        return {
            "deliveries": len(counted),
            "p50_ms": percentile(counted, 0.5),
            "p99_ms": percentile(counted, 0.99),
            "max_ms": max(counted),
        }

    def drain(self) -> dict[str, Any]:
        """Discard incoming data until every subscriber has received the last message."""
        tails = dict.fromkeys(self._connections, b"")
        left = len(tails)
        deadline = time.monotonic() + 120
        while left:
            if time.monotonic() > deadline:
                return {"error": f"{left} subscribers did not see the last message in 120 s"}
            for fd, _ in self._poll.poll(1.0):
                data = self._read(self._connections[fd])
                if not data:
                    return {"error": "a connection was closed"}
                tail = (tails[fd] + data[-512:])[-512:]
                if END in tail:
                    left -= 1
                    tail = b""
                tails[fd] = tail
        return {"drained": len(tails)}

    def close(self) -> dict[str, Any]:
        for connection in self._connections.values():
            self._poll.unregister(connection.socket)
            connection.socket.close()
        count = len(self._connections)
        self._connections.clear()
        return {"closed": count}


def raise_limit() -> int:
    """Raise the limit of open files of this process to its maximum; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> None:
    raise_limit()
    readers = Readers()
    for line in sys.stdin:
        command = json.loads(line)
        what = command.pop("do")
        if what in {"latency", "drain"}:
            # Print this before the loop starts, so that the publisher can start.
            print("{}", flush=True)
        print(json.dumps(getattr(readers, what)(**command)), flush=True)


if __name__ == "__main__":
    main()
