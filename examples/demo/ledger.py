"""What was written, what each reader shows, and where the two differ. Without I/O."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

WORD: Final = re.compile(r"\S+\s*")


@dataclass(slots=True)
class Reading:
    """The text of one reader and its counters.

    Attributes:
        name: Name of the reader.
        transport: The transport that it uses.
        text: The text that its events add up to.
        count: Number of words in the text.
        latencies: Seconds from the publish of each message to its arrival at the reader.
        gaps: Number of gaps: tokens that were missing until the next snapshot.
        altered: How often the reader's text was not a prefix of what was written.
        reconnects: How often the client reconnected.
        rotations: How often the token was renewed on an open connection.
        finished: Whether the reader received the end of the stream.
    """

    name: str
    transport: str
    text: str = ""
    count: int = 0
    latencies: list[float] = field(default_factory=list[float])
    gaps: int = 0
    altered: int = 0
    reconnects: int = 0
    rotations: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """One reader's figures, in words."""

    received: int
    lost: int
    twice: int
    altered: int

    @property
    def whole(self) -> bool:
        """Whether the reader shows exactly what was written."""
        return not (self.lost or self.twice or self.altered)


@dataclass(slots=True)
class Ledger:
    """Everything that was written, word by word."""

    words: list[str] = field(default_factory=list[str])
    written_at: list[float] = field(default_factory=list[float])
    text: str = ""
    _ends: list[int] = field(default_factory=list[int])

    def write(self, word: str, at: float) -> None:
        """Record a word that is about to be written."""
        self.words.append(word)
        self.written_at.append(at)
        self.text += word
        self._ends.append(len(self.text))

    def take(self, reading: Reading, text: str) -> range:
        """Record the text that a reader shows.

        Args:
            reading: The reader's record.
            text: Its whole text.

        Returns:
            The indexes of the new words.
        """
        if not self.text.startswith(text):
            reading.altered += 1
        new = range(reading.count, bisect_right(self._ends, len(text)))
        reading.text, reading.count = text, max(reading.count, new.stop)
        return new

    def account(self, reading: Reading) -> Account:
        """Compare what a reader shows at the end with what was written."""
        shown = WORD.findall(reading.text)
        written, count = len(self.words), len(shown)
        same = sum(one == other for one, other in zip(self.words, shown, strict=False))
        return Account(
            received=same,
            lost=max(0, written - count),
            twice=max(0, count - written),
            altered=max(reading.altered, min(written, count) - same),
        )


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile; 0 if there are no values."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def judge(
    ledger: Ledger, words: int, readings: list[Reading], *, reconnects: int, rotations: int
) -> list[str]:
    """List what went wrong; empty if the demonstration succeeded.

    Args:
        ledger: The words that were written.
        words: Number of words that had to be written.
        readings: The reader that is cut, then the others.
        reconnects: Minimum reconnections of the first reader: a slow machine may cause more.
        rotations: Expected token rotations of the first reader.
    """
    wrong: list[str] = []
    if len(ledger.words) != words:
        wrong.append(f"{len(ledger.words):,} of {words:,} words were written")
    for reading in readings:
        account = ledger.account(reading)
        found = {
            "lost": account.lost,
            "seen twice": account.twice,
            "altered": account.altered,
        }
        counts = ", ".join(f"{count:,} {what}" for what, count in found.items() if count)
        if counts:
            wrong.append(f"{reading.name}: {counts}")
        if not reading.finished:
            wrong.append(f"{reading.name}: did not receive the end of the stream")
    first = readings[0]
    if first.reconnects < reconnects:
        made = _times(first.reconnects, "reconnect")
        wrong.append(f"{first.name}: {made}, not {reconnects} or more")
    if first.rotations != rotations:
        wrong.append(f"{first.name}: {_times(first.rotations, 'rotation')}, not {rotations}")
    return wrong


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def summary(ledger: Ledger, reading: Reading) -> str:
    """Return the last line: the counted figures."""
    account = ledger.account(reading)
    figures = {
        "published": len(ledger.words),
        "received": account.received,
        "lost": account.lost,
        "twice": account.twice,
        "reconnects": reading.reconnects,
        "rotations": reading.rotations,
    }
    return " · ".join(f"{name} {count:,}" for name, count in figures.items())
