"""What was written, what each reader shows, and where the two differ. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

WORD: Final = re.compile(r"\S+\s*")


@dataclass(slots=True)
class Reading:
    """What one reader shows.

    Attributes:
        name: Of the reader.
        transport: How it reads.
        text: What its events amount to.
        count: Words of the text.
        latencies: Seconds from the writing of a word to the reader.
        gaps: Times at which tokens were missing until the next snapshot.
        altered: Times at which the text was not the beginning of what was written.
        reconnects: How often the client was connected again.
        rotations: How often the token was renewed on the open connection.
        finished: Whether the end of the stream was seen.
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
        """A word is about to be written."""
        self.words.append(word)
        self.written_at.append(at)
        self.text += word
        self._ends.append(len(self.text))

    def take(self, reading: Reading, text: str, now: float | None) -> range:
        """A reader shows this text.

        Args:
            reading: Of the reader.
            text: All of it.
            now: The time, for the latencies; None where they mean nothing.

        Returns:
            Which words are new.
        """
        if not self.text.startswith(text):
            reading.altered += 1
        new = range(reading.count, bisect_right(self._ends, len(text)))
        reading.text, reading.count = text, max(reading.count, new.stop)
        if now is not None:
            reading.latencies += [now - self.written_at[index] for index in new]
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
    """The nearest-rank percentile; 0 of nothing."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def judge(
    ledger: Ledger, words: int, readings: list[Reading], *, reconnects: int, rotations: int
) -> list[str]:
    """What differs from what the demonstration promises; nothing when it kept its word.

    Args:
        ledger: What was written.
        words: How many words there were to write.
        readings: The reader that is cut first, then the others.
        reconnects: Times the first reader had to come back.
        rotations: Times its token had to be renewed.
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
        told = ", ".join(f"{count:,} {what}" for what, count in found.items() if count)
        if told:
            wrong.append(f"{reading.name}: {told}")
        if not reading.finished:
            wrong.append(f"{reading.name}: did not see the end of the stream")
    first = readings[0]
    if first.reconnects != reconnects:
        wrong.append(f"{first.name}: {_times(first.reconnects, 'reconnect')}, not {reconnects}")
    if first.rotations != rotations:
        wrong.append(f"{first.name}: {_times(first.rotations, 'rotation')}, not {rotations}")
    return wrong


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def summary(ledger: Ledger, reading: Reading) -> str:
    """The last line, from what was counted."""
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
