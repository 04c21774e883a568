"""The state of the show: the roles write it, the screen reads it."""

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
    """Something worth a line.

    Attributes:
        at: Seconds since the show began.
        kind: What it was.
        text: In words.
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
    """Everything there is to see.

    Attributes:
        topic: Where all of it happens.
        total: Words to write.
        ledger: What was written.
        reader: The reader that is cut, over a WebSocket.
        observer: The reader of server-sent events.
        latecomer: The reader that joins at the end.
        page: Where a browser can watch; empty where it cannot.
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
        """Seconds since the show began."""
        return (self.ended or time.perf_counter()) - self.began

    @property
    def progress(self) -> float:
        """How much of the text is written, 0 to 1."""
        return len(self.ledger.words) / self.total

    @property
    def rate(self) -> float:
        """Words a second over the last two seconds or so."""
        if len(self.pace) < 2:
            return 0.0
        return (len(self.pace) - 1) / max(self.pace[-1] - self.pace[0], 1e-6)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition is true; it is checked whenever the demonstration advances."""
        if not reached():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((reached, future))
            await future

    async def reach(self, share: float) -> None:
        """Wait until this share of the text is written."""
        await self.until(lambda: self.progress >= share)

    def go_on(self) -> None:
        """Something has changed."""
        waiting, self._waiting = self._waiting, []
        for reached, future in waiting:
            if future.done():
                continue
            if reached():
                future.set_result(None)
            else:
                self._waiting.append((reached, future))

    def tell(self, kind: Kind, text: str) -> None:
        """Something happened."""
        self.happenings.append(Happening(self.elapsed, kind, text))
        self.go_on()

    def show(self, new: range, now: float) -> None:
        """The reader got these words."""
        for index in new:
            written = self.ledger.written_at[index]
            self.words.append(Shown(self.ledger.words[index], healed=written < self.connected_at))
            self.lag.append((now - self.began, now - written))
        self.go_on()
