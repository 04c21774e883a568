"""SP sockets beside NNG 1.11 (pynng) over a Unix socket, in turns."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import select
import socket
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pynng  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from hanzoai.pubsub.sp import PubSocket, SubSocket, blocking
from hanzoai.pubsub.sp.prefixes import Prefixes
from tests.bench.tables import measured, met, table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Subscribers = Callable[[str, int, socket.socket], None]
    from tests.bench.processes import Json

SUBSCRIBERS = (10, 100)
PREFIXES = (10, 1_000, 100_000)
PUBLISHERS = ("sdk", "nng", "bare")
BOUNDS = {
    "bare again": "loop in Python",
    "c": "loop in C",
    "sdk to sdk": "SDK to SDK",
    "nng to nng": "pynng to pynng",
}
BODY = b"t" + bytes(63)
_PATIENCE = 30.0
_HELLO_PUB = bytes.fromhex("0053500000200000")
_HELLO_SUB = bytes.fromhex("0053500000210000")
_WIRE = b"\1" + len(BODY).to_bytes(8, "big") + BODY


def measure(*, quick: bool) -> Json:
    turns, messages, seconds = (2, 200, 0.5) if quick else (5, 1_000, 2.0)
    fanout: dict[int, dict[str, list[tuple[float, float]]]] = {}
    received: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            for count in SUBSCRIBERS:
                found = fanout.setdefault(count, {})
                path = f"{folder}/{turn}-{count}"
                for who, fan_out, subscribers in BASELINES:
                    where = f"{path}{len(found.get(who, ()))}{who[0]}{len(who)}"
                    found.setdefault(who, []).append(fan_out(where, count, messages, subscribers))
            for name, run in (
                ("sdk", _receive),
                ("sdk, blocking", _receive_blocking),
                ("nng", _nng_receives),
            ):
                path = f"{folder}/{turn}-{name[-4:]}"
                received.setdefault(name, []).append(run(path, seconds))
    points = [
        {
            "subscribers": count,
            "who": who,
            "elapsed_us": statistics.median(elapsed for elapsed, _ in runs),
            "cpu_us": statistics.median(cpu for _, cpu in runs),
        }
        for count, found in fanout.items()
        for who, runs in found.items()
    ]
    return {
        "pynng": pynng.__version__,
        "fanout": [point for point in points if point["who"] in PUBLISHERS],
        "bounds": {"points": [point for point in points if point["who"] not in PUBLISHERS]},
        "received": {name: statistics.median(rates) for name, rates in received.items()},
        "prefixes": {str(count): _check(count) for count in PREFIXES},
    }


def render(run: Json) -> str:
    fanout = {(point["subscribers"], point["who"]): point for point in run["fanout"]}
    rows: list[list[str]] = []
    for count in SUBSCRIBERS:
        ours, theirs, bare = (fanout[count, who] for who in PUBLISHERS)
        for what, key in (("until all have it", "elapsed_us"), ("of CPU", "cpu_us")):
            ratio = theirs[key] / ours[key]
            rows.append(
                [
                    f"one message to {count} subscribers, µs {what}",
                    f"{ours[key]:.0f}",
                    f"{theirs[key]:.0f}",
                    f"{ratio:.1f}",
                    f"{bare[key]:.0f}",
                ]
            )
    rates = run["received"]
    for name, label in (("sdk", "asyncio"), ("sdk, blocking", "blocking")):
        rows.append(
            [
                f"messages received per second ({label})",
                f"{rates[name]:,.0f}",
                f"{rates['nng']:,.0f}",
                f"{rates[name] / rates['nng']:.1f}",
                "",
            ]
        )
    checks = ", ".join(
        f"{nanoseconds:.0f} ns with {int(count):,}"
        for count, nanoseconds in run["prefixes"].items()
    )
    figures = [
        (f"one message to {count} subscribers in less than {limit:,} µs", elapsed < limit, elapsed)
        for count, limit in ((10, 100), (100, 1_000))
        for elapsed in [fanout[count, "sdk"]["elapsed_us"]]
    ]
    figures.append(("100,000 messages received per second", rates["sdk"] > 1e5, rates["sdk"]))
    check = run["prefixes"]["1000"]
    figures.append(("1,000 prefixes checked in less than 1,000 ns", check < 1000, check))
    ratios = [
        (f"to {count}", fanout[count, "nng"]["elapsed_us"] / fanout[count, "sdk"]["elapsed_us"])
        for count in SUBSCRIBERS
    ]
    ratios.append(("receiving", rates["sdk"] / rates["nng"]))
    targets = "; ".join(
        [
            *(f"{what} ({met(is_met)}: {value:,.0f})" for what, is_met, value in figures),
            "twice as fast as pynng: "
            + ", ".join(f"{what} ({met(ratio >= 2)}: {ratio:.1f})" for what, ratio in ratios),
        ]
    )
    return "\n".join(
        [
            "### SP sockets",
            "",
            f"[SP sockets](sp.md) and pynng {run['pynng']} (NNG 1.11) take turns on a Unix socket, "
            f"with messages of {len(BODY)} bytes. The subscribers of a fan-out are bare sockets in "
            "another process. Receivers read from a publisher in another process that writes as "
            "fast as it can. The bare loop only calls `write` once per subscriber: no "
            f"single-threaded publisher can be faster.{measured(run)}",
            "",
            table(["", "SDK", "pynng", "SDK faster by", "bare loop"], rows),
            "",
            f"The check whether a message begins with one of the prefixes takes {checks} prefixes.",
            "",
            f"Targets: {targets}.",
            "",
            *_bounds(run["bounds"]),
        ]
    )


def _bounds(run: Json) -> list[str]:
    """The maximum rate of the publisher, and the end-to-end cost of a message."""
    found = {(point["subscribers"], point["who"]): point for point in run["points"]}
    rows = [
        [
            f"one message to {count} subscribers, µs {what}",
            *(f"{found[count, who][key]:.0f}" for who in BOUNDS),
        ]
        for count in SUBSCRIBERS
        for what, key in (("until all have it", "elapsed_us"), ("of CPU", "cpu_us"))
    ]
    return [
        "The bare loop takes about as long in C as in Python, because a `write` to a Unix socket "
        "that wakes its reader costs about 2 µs in the kernel. With 100 of them, a single thread "
        "cannot be twice as fast as pynng, which writes from several threads. If all subscribers "
        "use the same library in one process, they take most of the time, because asyncio wakes "
        f"the program once per socket.{measured(run) if 'run' in run else ''}",
        "",
        table(["", *BOUNDS.values()], rows),
    ]


# ---------------------------------------------------------------- fan-out


def _fan_out(path: str, count: int, messages: int, subscribers: Subscribers) -> tuple[float, float]:
    async def run() -> tuple[float, float]:
        async with PubSocket() as pub:
            await pub.listen(f"ipc://{path}")
            with _subscribers(path, count, subscribers) as control:
                await pub.wait_for_peers(count, timeout=30)
                return _time(pub.send, control, messages)

    return asyncio.run(run())


def _nng_fans_out(
    path: str, count: int, messages: int, subscribers: Subscribers
) -> tuple[float, float]:
    with pynng.Pub0() as pub:
        pub.listen(f"ipc://{path}")
        with _subscribers(path, count, subscribers) as control:
            return _time(pub.send, control, messages, lambda: len(pub.pipes) == count)


def _bare_fans_out(
    path: str, count: int, messages: int, subscribers: Subscribers
) -> tuple[float, float]:
    def make(files: list[int]) -> Callable[[bytes], None]:
        def send(body: bytes) -> None:
            data = b"\1" + len(body).to_bytes(8, "big") + body
            for file in files:
                os.write(file, data)

        return send

    return _loop_fans_out(path, count, messages, subscribers, make)


def _c_fans_out(
    path: str, count: int, messages: int, subscribers: Subscribers
) -> tuple[float, float]:
    source = Path(__file__).with_name("write_to_all.c")
    library = f"{path}.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    write_to_all = ctypes.CDLL(library).write_to_all

    def make(files: list[int]) -> Callable[[bytes], None]:
        numbers = (ctypes.c_int * count)(*files)

        def send(body: bytes) -> None:
            data = b"\1" + len(body).to_bytes(8, "big") + body
            write_to_all(numbers, count, data, len(data))

        return send

    return _loop_fans_out(path, count, messages, subscribers, make)


def _loop_fans_out(
    path: str,
    count: int,
    messages: int,
    subscribers: Subscribers,
    make: Callable[[list[int]], Callable[[bytes], None]],
) -> tuple[float, float]:
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        listener.bind(path)
        listener.listen(count)
        control = stack.enter_context(_subscribers(path, count, subscribers))
        files: list[int] = []
        for _ in range(count):
            peer = stack.enter_context(listener.accept()[0])
            peer.recv(8)
            peer.sendall(_HELLO_PUB)
            files.append(peer.fileno())
        return _time(make(files), control, messages)


def _time(
    send: Callable[[bytes], object],
    control: socket.socket,
    messages: int,
    ready: Callable[[], bool] = lambda: True,
) -> tuple[float, float]:
    """Median microseconds until all subscribers have a message, and CPU time per message."""
    control.settimeout(_PATIENCE)
    assert control.recv(1) == b"r"
    end = time.monotonic() + _PATIENCE
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)
    elapsed: list[float] = []
    cpu = time.process_time()
    for _ in range(messages):
        start = time.perf_counter()
        send(BODY)
        control.recv(1)
        elapsed.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    return statistics.median(elapsed) * 1e6, cpu / messages * 1e6


@contextmanager
def _subscribers(path: str, count: int, subscribers: Subscribers) -> Generator[socket.socket]:
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(
        target=subscribers, args=(path, count, theirs)
    )
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _subscribe(path: str, count: int, control: socket.socket) -> None:
    """Connect all, and report each time that all connections have received a message."""
    poll = select.epoll()
    sockets: list[socket.socket] = []
    for _ in range(count):
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        made.sendall(_HELLO_SUB)
        made.recv(8)
        poll.register(made.fileno(), select.EPOLLIN)
        sockets.append(made)
    control.send(b"r")
    while True:
        left = count
        while left:
            for file, _ in poll.poll():
                if not os.read(file, len(_WIRE)):
                    return
                left -= 1
        control.send(b"x")


def _subscribe_with_the_sdk(path: str, count: int, control: socket.socket) -> None:
    async def run() -> None:
        subs = [SubSocket() for _ in range(count)]
        for sub in subs:
            sub.subscribe(b"t")
            await sub.dial(f"ipc://{path}")
            await sub.wait_for_peers(timeout=_PATIENCE)
        control.send(b"r")
        while True:
            for sub in subs:
                await sub.recv()
            control.send(b"x")

    asyncio.run(run())


def _subscribe_with_nng(path: str, count: int, control: socket.socket) -> None:
    subs = [pynng.Sub0(dial=f"ipc://{path}", topics=b"t") for _ in range(count)]
    control.send(b"r")
    while True:
        for sub in subs:
            sub.recv()
        control.send(b"x")


# ---------------------------------------------------------------- receive


def _receive(path: str, seconds: float) -> float:
    async def run() -> float:
        async with SubSocket() as sub:
            sub.subscribe(b"t")
            await sub.listen(f"ipc://{path}")
            with _flood(path):
                await sub.wait_for_peers(timeout=30)
                await sub.recv()
                recv, count = sub.recv, 0
                start = time.perf_counter()
                while time.perf_counter() - start < seconds:
                    for _ in range(1000):
                        await recv()
                    count += 1000
                return count / (time.perf_counter() - start)

    return asyncio.run(run())


def _receive_blocking(path: str, seconds: float) -> float:
    with blocking.SubSocket() as sub:
        sub.subscribe(b"t")
        sub.listen(f"ipc://{path}")
        with _flood(path):
            return _rate(sub.recv, seconds)


def _nng_receives(path: str, seconds: float) -> float:
    with pynng.Sub0() as sub:
        sub.subscribe(b"t")
        sub.listen(f"ipc://{path}")
        with _flood(path):
            return _rate(sub.recv, seconds)


def _rate(recv: Callable[[], bytes], seconds: float) -> float:
    recv()
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(1000):
            recv()
        count += 1000
    return count / (time.perf_counter() - start)


@contextmanager
def _flood(path: str) -> Generator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_publish, args=(path,))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _publish(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(path)
        made.sendall(_HELLO_PUB)
        made.recv(8)
        chunk = _WIRE * 500
        while True:
            made.sendall(chunk)


# ---------------------------------------------------------------- prefixes


def _check(count: int) -> float:
    """Nanoseconds per check with a number of prefixes; half of the messages match."""
    prefixes = Prefixes()
    for n in range(count):
        prefixes.add(b"sensor/%06d/" % (2 * n))
    bodies = [b"sensor/%06d/temperature=25" % (n * 7919 % (2 * count)) for n in range(1000)]
    prefixes.select(bodies)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        prefixes.select(bodies)
        best = min(best, time.perf_counter() - start)
    return best / len(bodies) * 1e9


BASELINES = (
    ("sdk", _fan_out, _subscribe),
    ("nng", _nng_fans_out, _subscribe),
    ("bare", _bare_fans_out, _subscribe),
    ("bare again", _bare_fans_out, _subscribe),
    ("c", _c_fans_out, _subscribe),
    ("sdk to sdk", _fan_out, _subscribe_with_the_sdk),
    ("nng to nng", _nng_fans_out, _subscribe_with_nng),
)
