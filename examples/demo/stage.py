"""The state of the demonstration: the participants update it, the screen reads it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from examples.demo.ledger import Ledger, Reading

Kind = Literal["cut", "back", "rotated", "people", "stream", "loss"]
SYMBOLS: dict[Kind, str] = {
    "cut": "✂",
    "back": "↻",
    "rotated": "⟳",
    "people": "☺",
    "stream": "▶",
    "loss": "✗",
}


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that is printed as a line.

    Attributes:
        at: Seconds since the start.
        kind: Kind of the event.
        text: Description.
    """

    at: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A word on the screen, and whether it was written while the connection was cut."""

    content: str
    healed: bool


@dataclass(slots=True)
class Stage:
    """The state of the demonstration.

    Attributes:
        topic: Topic of the stream.
        total: Number of words to write.
        ledger: The words that were written.
        reader: The reader that is cut, over a WebSocket.
        observer: The reader of server-sent events.
        latecomer: The reader that joins at the end.
        page: Address of the page for browsers; empty if there is none.
    """

    topic: str
    total: int
    ledger: Ledger = field(default_factory=Ledger)
    reader: Reading = field(default_factory=lambda: Reading("reader", "socket"))
    observer: Reading = field(default_factory=lambda: Reading("observer", "SSE"))
    latecomer: Reading = field(default_factory=lambda: Reading("latecomer", "replay"))
    page: str = ""
    happenings: list[Happening] = field(default_factory=list[Happening])
    words: list[Shown] = field(default_factory=list[Shown])
    members: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    state: str = "initialized"
    connected_at: float = 0.0
    pace: deque[float] = field(default_factory=lambda: deque(maxlen=120))
    lag: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=4096))
    began: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    _waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = field(
        default_factory=list[tuple[Callable[[], bool], asyncio.Future[None]]]
    )

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return (self.ended or time.perf_counter()) - self.began

    @property
    def progress(self) -> float:
        """Share of the text that has been written, 0 to 1."""
        return len(self.ledger.words) / self.total

    @property
    def rate(self) -> float:
        """Words per second over about the last two seconds."""
        if len(self.pace) < 2:
            return 0.0
        return (len(self.pace) - 1) / max(self.pace[-1] - self.pace[0], 1e-6)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition is true. It is checked after each change of the state."""
        if not reached():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((reached, future))
            await future

    async def reach(self, share: float) -> None:
        """Wait until this share of the text has been written."""
        await self.until(lambda: self.progress >= share)

    def go_on(self) -> None:
        """Check the conditions that tasks wait for."""
        waiting, self._waiting = self._waiting, []
        for reached, future in waiting:
            if future.done():
                continue
            if reached():
                future.set_result(None)
            else:
                self._waiting.append((reached, future))

    def report(self, kind: Kind, text: str) -> None:
        """Record an event."""
        self.happenings.append(Happening(self.elapsed, kind, text))
        self.go_on()

    def show(self, new: range) -> None:
        """Record that the reader received these words."""
        for index in new:
            written = self.ledger.written_at[index]
            self.words.append(Shown(self.ledger.words[index], healed=written < self.connected_at))
        self.go_on()
