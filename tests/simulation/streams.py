"""One stream in virtual time, from a seed: writers die, readers are cut, the log loses messages.

At any time, a view is a prefix of the answer or stale, and the events add up to the view. At the
end, every reader has the whole answer. The same seed gives the same log in every language
(tests/js/simulation/streams.ts).
"""

from __future__ import annotations

import hashlib
import heapq
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.streams.parts import Part, grow
from hanzoai.pubsub.streams.reading import Incoming, Reading
from hanzoai.pubsub.streams.writing import Writing
from tests.simulation.prng import Random

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = (
    "a",
    "Hello ",
    "wörld",
    "漢字",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "é",
    "\n",
    '"\\',
    "",
)
LONGEST = 600_000
"""Milliseconds within which a run must end."""
FAULTY = 60_000
"""Milliseconds after which history is always available, so that every run can end."""


def canonical(value: object) -> str:
    """Write JSON in the same form as every other language."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def applied(pieces: list[Any]) -> list[Part]:
    """Join pieces to text."""
    parts: list[Part] = []
    for piece in pieces:
        if piece != "":
            grow(parts, piece)
    return parts


def is_prefix(parts: list[Part], whole: list[Part]) -> bool:
    """Whether the parts were a state of the answer at some time."""
    if len(parts) > len(whole):
        return False
    for n, part in enumerate(parts):
        other = whole[n]
        if part != other:
            cut = {**part, "text": other.get("text", "")} == other
            return cut and n == len(parts) - 1 and other["text"].startswith(part["text"])
    return True


class Reader:
    """A reader, and the view that its events add up to."""

    def __init__(self, name: str, want: str) -> None:
        self.name = name
        self.reading = Reading(want)
        self.joined = False
        self.cut = False
        self.missed: list[int] = []
        self.last = 0
        self.view: list[Part] = []
        self.due: int | None = None
        self.gaps = 0


class StreamRun:
    """One run."""

    def __init__(self, seed: int, log: bool = False) -> None:
        self.lines: list[str] | None = [] if log else None
        self._digest = hashlib.sha256()
        self.random = Random(seed)
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        random = self.random
        self.keeps = random.pick((20, 40, 100))
        self.idempotent = random.chance(700)
        self.plain = random.chance(300)
        self.log: list[tuple[int, Incoming]] = []
        self.ids: dict[str, str] = {}
        self.published = 0
        self.pieces = self._source()
        self.prefixes = [canonical(self._whole(n)) for n in range(len(self.pieces) + 1)]
        self.answer = self._whole(len(self.pieces))
        self.epoch = 0
        self.over = False
        self.takeovers = 0
        self.readers = [
            Reader(f"r{n}", random.pick(("s", "latest"))) for n in range(random.between(1, 4))
        ]
        for reader in self.readers:
            self.later(random.below(4_000), partial(self._join, reader))
            for _ in range(random.below(3)):
                self.later(random.below(9_000), partial(self._cut, reader))
        self._start_writer(None, [], 0)

    # ------------------------------------------------------------ the world

    def run(self) -> None:
        """Run until all writers and readers have ended."""
        while self._queue:
            at, _, call = heapq.heappop(self._queue)
            self.now = at
            if at > LONGEST:
                break
            call()
            if self.over and all(reader.reading.ended for reader in self.readers):
                break
        for reader in self.readers:
            if not reader.reading.ended:
                raise AssertionError(f"{reader.name} has not ended")
            if reader.reading.parts != self.answer:
                raise AssertionError(f"{reader.name} has {reader.reading.parts}")

    def digest(self) -> str:
        """A hash of the log."""
        return self._digest.hexdigest()

    def later(self, after: int, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + after, self._number, call))

    def say(self, *words: object) -> None:
        line = f"{self.now} {' '.join(str(word) for word in words)}"
        self._digest.update(line.encode() + b"\n")
        if self.lines is not None:
            self.lines.append(line)

    def _source(self) -> list[Any]:
        pieces: list[Any] = []
        for n in range(self.random.between(5, 120)):
            chance = self.random.below(1000)
            if chance < 30:
                pieces += [
                    {"type": "tool-call", "id": f"c{n}", "text": ""},
                    {"text": '{"a":'},
                    {"text": "1}"},
                ]
            elif chance < 40:
                pieces.append({"type": "citation", "url": f"u{n}"})
            elif chance < 70:
                pieces += ["x\ud83d", "\ude00"]
            else:
                pieces.append(self.random.pick(WORDS))
        return pieces

    def _whole(self, n: int) -> list[Part]:
        """Join the first pieces to text, without half of a surrogate pair."""
        pieces = list(self.pieces[:n])
        for at, piece in enumerate(pieces):
            if piece == "x\ud83d":
                pieces[at] = "x"
            elif piece == "\ude00":
                pieces[at] = "\U0001f600"
        return applied(pieces)

    # ------------------------------------------------------------ the server

    def _publish(self, frame: Any) -> str | None:
        """Publish a frame; return the code of an error."""
        data = canonical(frame["data"])
        if self.idempotent and frame["id"] in self.ids:
            return None if self.ids[frame["id"]] == data else "conflict"
        self.ids[frame["id"]] = data
        self.published += 1
        message: Incoming = {"type": frame["type"], "data": json.loads(data), "sender": "svc"}
        self.log.append((self.published, message))
        del self.log[: -self.keeps]
        for reader in self.readers:
            if not reader.joined:
                continue
            if reader.cut:
                reader.missed.append(self.published)
            elif not (self.plain and self.random.chance(40)):
                delay = self.random.between(1, 30)
                if not self.plain:
                    reader.last = max(reader.last, self.now + delay)
                    delay = reader.last - self.now
                self.later(delay, partial(self._deliver, reader, message))
        return None

    def _history(self) -> list[Incoming]:
        return [message for _, message in self.log]

    # ------------------------------------------------------------ a writer

    def _start_writer(self, base: int | None, parts: list[Part], first: int) -> None:
        writing = Writing("s", self.epoch, f"w{self.epoch}", base=base, parts=parts)
        self.epoch += 1
        alive = [True]
        due: list[int | None] = [None]

        def step(name: str, effects: list[Any]) -> None:
            self.say(f"w{writing.epoch}", name, canonical(effects), writing.due)
            for effect in effects:
                if effect["kind"] == "publish":
                    send(effect)
                elif effect["kind"] != "slowed":
                    raise AssertionError(f"unexpected {effect}")
            self.over |= writing.ended
            if writing.due is not None and writing.due != due[0]:
                due[0] = writing.due
                self.later(max(0, writing.due - self.now), tick)

        def tick() -> None:
            due[0] = None
            if alive[0] and writing.due is not None and self.now >= writing.due:
                step("tick", writing.tick(self.now))
            elif alive[0] and writing.due is not None:
                due[0] = writing.due
                self.later(writing.due - self.now, tick)

        def send(frame: Any) -> None:
            random = self.random
            trip = random.between(200, 1500) if random.chance(30) else random.between(1, 30)
            fate = random.below(1000)

            def arrive() -> None:
                code: str | None = "rate_limited" if fate < 30 else self._publish(frame)
                if code is None and 30 <= fate < 60:
                    code = "timeout"
                self.later(trip, lambda: answer(code))

            self.later(trip, arrive)

        def answer(code: str | None) -> None:
            if not alive[0]:
                return
            if code is None:
                step("sent", writing.sent(self.now))
            else:
                step(f"failed {code}", writing.failed(code, code != "conflict", self.now))

        def write(n: int) -> None:
            if not alive[0]:
                return
            if n == len(self.pieces):
                step("finish", writing.finish("complete", {"finish_reason": "stop"}, self.now))
                return
            # A writer that takes over between the halves of a pair must write both.
            half = n == first and self.pieces[n] == "\ude00"
            piece = "\U0001f600" if half else self.pieces[n]
            step("write", writing.write(piece, self.now))
            pause = (
                self.random.between(1000, 4000) if self.random.chance(20) else self.random.below(60)
            )
            self.later(pause, lambda: write(n + 1))

        def die() -> None:
            if self.over or not alive[0]:
                return
            alive[0] = False
            self.say(f"w{writing.epoch}", "dies")
            self.later(self.random.between(500, 12_000), self._take_over)

        if self.takeovers < 3 and self.random.chance(350):
            self.takeovers += 1
            self.later(self.random.below(5_000), die)
        step("open", writing.open(self.now))
        self.later(0, lambda: write(first))

    def _take_over(self) -> None:
        reading = Reading("s")
        reading.begin(self._history(), self.now)
        if reading.ended:
            self.over = True
            return
        self.epoch = max(self.epoch, reading.epoch + 1)
        known = reading.epoch >= 0 and not reading.stale and reading.based
        if known:
            at = self.prefixes.index(canonical(reading.parts))
            self._start_writer(reading.next, reading.parts, at)
        else:
            self._start_writer(None, [], 0)

    # ------------------------------------------------------------ a reader

    def _join(self, reader: Reader) -> None:
        reader.joined = True
        self._read(reader, "begin", reader.reading.begin(self._history(), self.now))

    def _deliver(self, reader: Reader, message: Incoming) -> None:
        if not reader.cut:
            self._read(reader, "take", reader.reading.take(message, self.now))

    def _cut(self, reader: Reader) -> None:
        if reader.joined and not reader.cut:
            reader.cut = True
            self.later(self.random.between(50, 6_000), lambda: self._mend(reader))

    def _mend(self, reader: Reader) -> None:
        reader.cut = False
        missed, reader.missed = reader.missed, []
        first = self.log[0][0] if self.log else 0
        # Frames in transit when the connection broke are lost, too.
        self._read(reader, "lost", reader.reading.lost(self.now))
        if missed and missed[0] < first:
            self.say(reader.name, "trimmed")
        for number, message in list(self.log):
            if number in missed:
                self._read(reader, "take", reader.reading.take(message, self.now))

    def _heal(self, reader: Reader) -> None:
        away = self.random.chance(300) and self.now < FAULTY
        history = [] if away else self._history()
        self._read(reader, "healed", reader.reading.healed(history, self.now))

    def _tick(self, reader: Reader) -> None:
        reader.due = None
        due = reader.reading.due
        if due is not None and self.now >= due:
            self._read(reader, "tick", reader.reading.tick(self.now))
        else:
            self._wind(reader)

    def _wind(self, reader: Reader) -> None:
        due = reader.reading.due
        if due is not None and reader.due is None:
            reader.due = due
            self.later(max(0, due - self.now), lambda: self._tick(reader))

    def _read(self, reader: Reader, name: str, effects: list[Any]) -> None:
        reading = reader.reading
        self.say(
            reader.name, name, canonical(effects), reading.next, "stale" if reading.stale else ""
        )
        replaced = False
        for effect in effects:
            kind = effect["kind"]
            if kind == "heal":
                self.later(self.random.between(5, 60), lambda: self._heal(reader))
            elif kind == "gap":
                reader.gaps += 1
            elif kind == "delta" and not replaced:
                for piece in effect["pieces"]:
                    grow(reader.view, piece)
            elif kind == "snapshot":
                replaced = True
        if replaced:
            reader.view = json.loads(json.dumps(reading.parts))
        if reader.view != reading.parts:
            raise AssertionError(f"{reader.name}: the events amount to {reader.view}")
        if not reading.stale and not is_prefix(reading.parts, self.answer):
            raise AssertionError(f"{reader.name}: no prefix: {reading.parts}")
        self._wind(reader)


def simulate_stream(seed: int, log: bool = False) -> StreamRun:
    """Run one seed."""
    run = StreamRun(seed, log)
    run.run()
    return run
