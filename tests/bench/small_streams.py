"""Many small streams with one publisher and one subscriber per topic, as chats and agents have."""

from __future__ import annotations

import hashlib
import select
import socket
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.bench import peers
from tests.bench.dialects import content, perform, publication, steps
from tests.bench.processes import Json, cpu_seconds, interleave, percentile
from tests.bench.tables import measured, met, rounds_of, table
from tests.bench.wire import PIECE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.bench.servers import Server

STREAMS: Final = 100
RATE: Final = 20
"""Messages per second of each stream."""
WARM_UP: Final = 1.0
PATIENCE: Final = 30.0
BASELINES: Final = (
    peers.OURS,
    peers.CENTRIFUGO,
    peers.OURS_ON_REDIS,
    peers.CENTRIFUGO_ON_REDIS,
)
BARE: Final = "bare script on Redis"
TARGETS: Final = {"cpu_us": 150.0, "store_us": 60.0, "p99_ms": 1.4}
LABELS: Final = {
    "cpu_us": "µs of server CPU per message",
    "store_us": "µs of Redis",
    "p99_ms": "ms at p99",
}
COLUMNS: Final = {
    "cpu_us": ("server CPU, µs", 0),
    "store_us": ("Redis CPU, µs", 0),
    "p50_ms": ("p50, ms", 2),
    "p99_ms": ("p99, ms", 2),
}
"""The figures of the table: title and digits."""
SEPARATORS: Final = {"hanzo": ".", "centrifugo": ":"}
"""What ends the first part of a topic. In Centrifugo, this part selects the configuration."""
MARK: Final = b'"stamp":'
ANSWERS: Final = {"hanzo": b'"published"', "centrifugo": b'"publish":{}'}
"""A part of the answer to a publish, by dialect."""
SCRIPT: Final = b"""local seq = redis.call('INCR', KEYS[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '100', seq .. '-0', 'b', ARGV[1])
redis.call('SPUBLISH', KEYS[3], ARGV[1])
return seq"""


def measure(*, quick: bool) -> Json:
    seconds, rounds = (3, 1) if quick else (8, 5)
    names = peers.present(BASELINES)
    if peers.OURS_ON_REDIS in names:
        names.append(BARE)

    def run(name: str) -> Mapping[str, float]:
        if name == BARE:
            with peers.start(peers.REDIS) as store:
                return _bare(store, seconds)
        with peers.start(name) as server:
            return _run(server, seconds)

    found = interleave(names, rounds, run)
    return {"rounds": rounds, "baselines": found, "versions": peers.versions()}


def render(room: Json) -> str:
    medians = {name: found["median"] for name, found in room["baselines"].items()}
    sections = [_table(medians), _targets(medians), _ratios(medians)]
    if missing := [name for name in BASELINES if name not in medians]:
        sections.append(f"Not installed on this machine: {', '.join(missing)}.")
    return (
        "### Many small streams\n\n"
        f"{STREAMS} topics, each with one publisher, which sends {RATE} acknowledged messages per "
        "second, about 250 bytes each, and one subscriber. History and presence are on. Centrifugo "
        "also verifies a token per connection, and retains as many messages for clients that "
        "reconnect. It does not recognize repeated messages. The bare script numbers a message, "
        "appends it to a stream and publishes it to a channel, and does nothing else; "
        f"{rounds_of(room)}.{_versions(room)}{measured(room)}\n\n"
        + "\n\n".join(part for part in sections if part)
    )


def _table(medians: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [
            name,
            *(
                f"{found[figure]:.{digits}f}" if figure in found else ""
                for figure, (_, digits) in COLUMNS.items()
            ),
        ]
        for name, found in medians.items()
    ]
    return table(["", *(title for title, _ in COLUMNS.values())], rows)


def _targets(medians: Mapping[str, Mapping[str, float]]) -> str:
    if peers.OURS_ON_REDIS not in medians:
        return ""
    ours = medians[peers.OURS_ON_REDIS]
    parts = [
        f"at most {limit:g} {LABELS[figure]} ({met(ours[figure] <= limit)}: {ours[figure]:.3g})"
        for figure, limit in TARGETS.items()
    ]
    return f"Targets on Redis: {'; '.join(parts)}."


def _ratios(medians: Mapping[str, Mapping[str, float]]) -> str:
    """The figures of `hanzo-pubsub serve`, divided by those of Centrifugo."""
    pairs = ((peers.OURS, peers.CENTRIFUGO), (peers.OURS_ON_REDIS, peers.CENTRIFUGO_ON_REDIS))
    parts = [
        f"{ours} "
        + ", ".join(
            f"{medians[ours][figure] / theirs:.2f} ({COLUMNS[figure][0].partition(',')[0]})"
            for figure, theirs in medians[other].items()
        )
        for ours, other in pairs
        if ours in medians and other in medians
    ]
    return f"Divided by Centrifugo in the same run: {'; '.join(parts)}." if parts else ""


def _versions(room: Json) -> str:
    found = room.get("versions", {})
    versions = ", ".join(
        f"{name} {found[name]}" for name in ("centrifugo", "redis-server") if name in found
    )
    return f" Versions: {versions}." if versions else ""


# ---------------------------------------------------------------- load


@dataclass
class Stream:
    """One topic: its publisher, its subscriber, and the incomplete data that each has read."""

    publisher: socket.socket
    listener: socket.socket
    frame: Callable[[int], bytes]
    rests: dict[int, bytes] = field(default_factory=dict[int, bytes])


class Load:
    """Publishes at a steady rate and reads the deliveries, in one thread.

    Args:
        streams: All streams. Their messages are spread evenly over time.
        answer: A part of each answer to a publish.
    """

    def __init__(self, streams: list[Stream], answer: bytes) -> None:
        self._streams = streams
        self._answer = answer
        self._poll = select.epoll()
        self._of: dict[int, Stream] = {}
        for stream in streams:
            for each in {stream.publisher, stream.listener}:
                each.setblocking(False)
                self._poll.register(each.fileno(), select.EPOLLIN)
                self._of[each.fileno()] = stream
        self.latencies: list[float] = []
        self.answers = 0

    def run(self, seconds: float) -> int:
        """Publish for some seconds and wait for all deliveries; return the number of messages."""
        self.latencies.clear()
        self.answers = 0
        count = round(seconds * RATE) * len(self._streams)
        pause = 1 / (RATE * len(self._streams))
        begin = time.monotonic()
        for sent in range(count):
            due = begin + sent * pause
            while (left := due - time.monotonic()) > 0:
                self._read(left)
            stream = self._streams[sent % len(self._streams)]
            stream.publisher.sendall(stream.frame(time.monotonic_ns()))
        end = time.monotonic() + PATIENCE
        while len(self.latencies) < count or self.answers < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.latencies)} of {count}, {self.answers} answers")
            self._read(0.1)
        return count

    def _read(self, timeout: float) -> None:
        for file, _ in self._poll.poll(timeout):
            stream = self._of[file]
            here = stream.listener if file == stream.listener.fileno() else stream.publisher
            data = stream.rests.get(file, b"") + here.recv(PIECE)
            now = time.monotonic_ns()
            cut = data.rfind(b"}") + 1
            whole, stream.rests[file] = data[:cut], data[cut:]
            if here is stream.publisher:
                self.answers += whole.count(self._answer)
            if here is stream.listener:
                for part in whole.split(MARK)[1:]:
                    stamp = int(part[: part.index(b"}")])
                    self.latencies.append((now - stamp) / 1e6)


def _run(server: Server, seconds: float) -> dict[str, float]:
    dialect = server.dialect
    topics = [f"demo{SEPARATORS[dialect]}stream{n}" for n in range(STREAMS)]
    ways = [steps(dialect, server.ws, server.token, topic, presence=True) for topic in topics]
    with ExitStack() as stack:
        listeners = perform(server.ws, ways)
        # The last step subscribes.
        publishers = perform(server.ws, [way[:-1] for way in ways])
        for connection, _ in (*listeners, *publishers):
            stack.enter_context(connection)
        streams = [
            Stream(publisher, listener, _publish(dialect, topic))
            for topic, (publisher, _), (listener, _) in zip(
                topics, publishers, listeners, strict=True
            )
        ]
        return _measured(Load(streams, ANSWERS[dialect]), seconds, server)


def _publish(dialect: str, topic: str) -> Callable[[int], bytes]:
    text = content(topic)
    return lambda stamp: publication(dialect, topic, text, ref="1", stamp=stamp)


def _measured(load: Load, seconds: float, server: Server) -> dict[str, float]:
    load.run(WARM_UP)
    pids = {"cpu_us": server.worker.pid}
    if server.store is not None:
        pids["store_us"] = server.store.pid
    before = {figure: cpu_seconds(pid) for figure, pid in pids.items()}
    count = load.run(seconds)
    used = {figure: cpu_seconds(pid) - before[figure] for figure, pid in pids.items()}
    return {
        **{figure: taken / count * 1e6 for figure, taken in used.items()},
        "p50_ms": statistics.median(load.latencies),
        "p99_ms": percentile(load.latencies, 0.99),
    }


# ---------------------------------------------------------------- bare


def _bare(store: Server, seconds: float) -> dict[str, float]:
    parts = urlsplit(store.ws)
    where = (parts.hostname or "", parts.port or 6379)
    with ExitStack() as stack:
        streams: list[Stream] = []
        for n in range(STREAMS):
            channel = b"c{%d}" % n
            publisher, listener = (
                stack.enter_context(socket.create_connection(where)) for _ in range(2)
            )
            publisher.sendall(_command(b"SCRIPT", b"LOAD", SCRIPT))
            publisher.recv(PIECE)
            listener.sendall(_command(b"SSUBSCRIBE", channel))
            listener.recv(PIECE)
            streams.append(Stream(publisher, listener, _call(b"s{%d}" % n, b"l{%d}" % n, channel)))
        load = BareLoad(streams, b":")
        load.run(WARM_UP)
        before = cpu_seconds(store.worker.pid)
        count = load.run(seconds)
        used = cpu_seconds(store.worker.pid) - before
    return {
        "store_us": used / count * 1e6,
        "p50_ms": statistics.median(load.latencies),
        "p99_ms": percentile(load.latencies, 0.99),
    }


class BareLoad(Load):
    """The same load without a server: counts the answers and deliveries of Redis."""

    def _read(self, timeout: float) -> None:
        for file, _ in self._poll.poll(timeout):
            stream = self._of[file]
            if file == stream.publisher.fileno():
                self.answers += stream.publisher.recv(PIECE).count(self._answer)
                continue
            data = stream.rests.get(file, b"") + stream.listener.recv(PIECE)
            now = time.monotonic_ns()
            cut = data.rfind(b"}") + 1
            whole, stream.rests[file] = data[:cut], data[cut:]
            for part in whole.split(MARK)[1:]:
                self.latencies.append((now - int(part[: part.index(b"}")])) / 1e6)


def _call(*keys: bytes) -> Callable[[int], bytes]:
    digest = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
    text = content(keys[0].decode())
    return lambda stamp: _command(
        b"EVALSHA", digest, b"3", *keys, b'{"content":"%b","stamp":%d}' % (text.encode(), stamp)
    )


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
