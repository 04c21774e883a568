"""The server's cost per delivery while a publisher keeps it busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import peers
from tests.bench.dialects import END, ENVELOPE_BYTES, Publisher, content, publication
from tests.bench.processes import Json, cpu_seconds, interleave, worker
from tests.bench.tables import measured, met, rounds_of, spread, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.bench.processes import Worker

TOPIC = "demo.fanout"
BURSTS = (50, 8, 4, 1)
"""Messages that a publisher sends at once; it sends the next burst when these have come back."""
TARGETED = (1, 4)
"""Burst sizes with targets, which are based on the cost of the peers at these sizes."""
SIZES = {10: 6_000, 100: 1_000, 1_000: 80, 10_000: 16}
"""Messages of each burst size, by number of subscribers."""
LARGE = 10_000
"""No bursts of 50 with this many subscribers: peers that don't batch writes would take minutes."""
BASELINES = (
    peers.OURS,
    peers.OURS_ON_REDIS,
    peers.BARE,
    peers.EPOLL,
    peers.NATS,
    peers.REDIS,
    peers.BROADCAST,
)
SECONDS = 300
"""Time limit of one room in seconds. A busy machine does fewer rounds."""
STORE = "store, "


def measure(*, quick: bool) -> Json:
    """Measure up to a thousand subscribers."""
    share, rounds = (10, 1) if quick else (1, 3)
    return _measure([size for size in SIZES if size < LARGE], share, rounds)


def measure_large(*, quick: bool) -> Json:
    """Measure ten thousand subscribers. A room of its own: opening them takes most of the time."""
    return _measure([LARGE], 1, 1 if quick else 3)


def _measure(of: list[int], share: int, rounds: int) -> Json:
    names = peers.present(BASELINES)

    def run(name: str) -> Mapping[str, float]:
        return dict(_run(name, of, share))

    found = interleave(names, rounds, run, SECONDS)
    sizes = {str(size): {"baselines": _of_size(found, size)} for size in of}
    values = next(iter(found.values()))["values"]
    missing = [name for name in BASELINES if name not in names]
    return {
        "rounds": len(next(iter(values.values()))),
        "sizes": sizes,
        "missing": missing,
        "versions": peers.versions(),
    }


def _of_size(found: Mapping[str, Json], size: int) -> Json:
    """The results for one size, by baseline; a figure's name begins with its size."""
    start = f"{size} "
    return {
        name: {
            part: {
                figure.removeprefix(start): value
                for figure, value in figures.items()
                if figure.startswith(start)
            }
            for part, figures in each.items()
        }
        for name, each in found.items()
    }


def _run(name: str, sizes: list[int], share: int) -> Iterator[tuple[str, float]]:
    with peers.start(name) as server, worker("tests.bench.readers") as readers:
        where = {"url": server.ws, "token": server.token, "dialect": server.dialect}
        publisher = Publisher(server.dialect, server.ws, server.token, TOPIC)
        one = publication(server.dialect, TOPIC, content(TOPIC))
        last = publication(server.dialect, TOPIC, END.decode())
        watched = {"": server.worker} | ({STORE: server.store} if server.store else {})
        opened = 0
        for subscribers in sizes:
            count = subscribers - opened
            answer = readers.ask(do="open", **where, topics=[TOPIC], count=count)
            assert answer == {"open": subscribers}
            opened = subscribers
            messages = max(8, SIZES[subscribers] // share)
            _load(readers, publisher, one, last, max(8, messages // 5), 1)
            for burst in BURSTS:
                if subscribers >= LARGE and burst == max(BURSTS):
                    continue
                # Large bursts are cheap and short runs imprecise, so there are more large bursts.
                sent = messages * (4 if burst > 1 and subscribers < LARGE else 1)
                sent = max(burst, sent - sent % burst)
                before = {key: cpu_seconds(each.pid) for key, each in watched.items()}
                _load(readers, publisher, one, last, sent, burst)
                deliveries = (sent + 1) * (subscribers + 1)
                for key, each in watched.items():
                    used = cpu_seconds(each.pid) - before[key]
                    yield f"{subscribers} {key}{burst}", used / deliveries * 1e6
        publisher.close()


def _load(
    readers: Worker, publisher: Publisher, one: bytes, last: bytes, messages: int, burst: int
) -> None:
    readers.ask(do="drain")
    frames = one * burst
    for _ in range(messages // burst):
        publisher.send(frames)
        publisher.back(burst)
    publisher.send(last)
    publisher.back(1)
    answer = readers.read()
    if "error" in answer:
        raise RuntimeError(answer["error"])


# ---------------------------------------------------------------- the page


def render_large(room: Json) -> str:
    """Like `render`, without repeating what is measured."""
    summary = (
        f"### Fan-out to {LARGE:,}\n\n"
        f"As above, without bursts of 50; {rounds_of(room)}.{measured(room)}"
    )
    return "\n\n".join([summary, *_tables(room)])


def render(room: Json) -> str:
    """The tables of this room, and which targets are met."""
    parts = [
        "### Fan-out\n\n"
        "CPU time of the server, in µs, for each delivery of an envelope of "
        f"{ENVELOPE_BYTES} bytes: {rounds_of(room)}, with the minimum and maximum in brackets. The "
        "servers take turns. The publisher is a subscriber, too. It sends the given number of "
        "messages at once, and waits until it has received them.\n\n"
        "`hanzo-pubsub serve` checks, numbers, stores and routes each message. On Redis, a script "
        "does part of this, and a separate row shows the CPU time of Redis. All other servers only "
        "forward bytes. The bare writer is the lower limit for Python: asyncio transports on "
        "uvloop that join the bytes of one read. The loop in C writes each message separately."
        "\n\nVersions: "
        + ", ".join(f"{name} {number}" for name, number in room["versions"].items())
        + f".{measured(room)}"
    ]
    if room["missing"]:
        parts.append(f"Not installed on this machine: {', '.join(room['missing'])}.")
    return "\n\n".join([*parts, *_tables(room)])


def _tables(room: Json) -> list[str]:
    """A table for each burst size, and which targets are met."""
    bursts = [burst for burst in sorted(BURSTS) if str(burst) in _bursts(room)]
    return [*(_table(room, str(burst)) for burst in bursts), _verdict(room, bursts)]


def _bursts(room: Json) -> Json:
    found: Json = next(iter(room["sizes"].values()))["baselines"][peers.OURS]["median"]
    return found


def _median(room: Json, size: str, name: str, figure: str) -> float | None:
    found = room["sizes"][size]["baselines"].get(name)
    value: float | None = None if found is None else found["median"].get(figure)
    return value


def _table(room: Json, burst: str) -> str:
    sizes = list(room["sizes"])
    rows: list[list[str]] = []
    for name in room["sizes"][sizes[0]]["baselines"]:
        for key, title in (("", name), (STORE, "… its Redis")):
            figure = f"{key}{burst}"
            cells = [_cell(room, size, name, figure) for size in sizes]
            if any(cells):
                rows.append([title, *(cell or "—" for cell in cells)])
    what = "One message at a time" if burst == "1" else f"{burst} messages at a time"
    head = [what, *(f"{int(size):,} subscribers" for size in sizes)]
    return table(head, rows)


def _cell(room: Json, size: str, name: str, figure: str) -> str:
    median = _median(room, size, name, figure)
    if median is None:
        return ""
    values = room["sizes"][size]["baselines"][name]["values"][figure]
    return spread(median, values)


def _verdict(room: Json, bursts: list[int]) -> str:
    rows: list[list[str]] = []
    for peer, limit, target in (
        (peers.NATS, 1.0, "at most nats-server"),
        (peers.BARE, 1.5, "at most 1.5 times the bare writer"),
    ):
        for burst in bursts:
            cells: list[str] = []
            for size in room["sizes"]:
                own = _median(room, size, peers.OURS, str(burst))
                other = _median(room, size, peer, str(burst))
                if own is None or other is None:
                    cells.append("—")
                elif burst in TARGETED:
                    cells.append(f"{own / other:.2f}, {met(own / other <= limit)}")
                else:
                    cells.append(f"{own / other:.2f}")
            rows.append([f"{target}, {burst} at a time", *cells])
    head = ["target", *(f"{int(size):,} subscribers" for size in room["sizes"])]
    return (
        f"Targets, as the CPU time of `{peers.OURS}` divided by that of the peer. They come "
        "from a run in which the bare writer took 1.2, 1.3, 3.6 and 8.9 µs for 10, 100, 1,000 and "
        "10,000 subscribers, and nats-server 2.4, 2.8, 4.4 and 12.7 µs. This corresponds to about "
        "four messages at a time up to 100 subscribers, and to one at a time above. Larger bursts "
        "have no target: only `"
        f"{peers.OURS}` checks, numbers and stores messages, and these costs dominate when one "
        "write contains many messages.\n\n"
        f"{table(head, rows)}"
    )
