"""What was published, what each reader saw, and where the two differ. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Reading:
    """What one reader saw.

    Attributes:
        name: Of the reader.
        transport: How it read.
        seen: Ids and indices of the words in the order they came.
        text: What they say.
        latencies: Seconds from the call of publish to the reader, a word.
        gaps: Losses that the client told.
        reconnects: How often the client was connected again.
        rotations: How often the token was renewed on the open connection.
        finished: Whether the end of the stream was seen.
    """

    name: str
    transport: str
    seen: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    text: list[str] = field(default_factory=list[str])
    latencies: list[float] = field(default_factory=list[float])
    gaps: int = 0
    reconnects: int = 0
    rotations: int = 0
    finished: bool = False

    def note(self, message_id: str, index: int, content: str, latency: float | None) -> None:
        """A word came."""
        self.seen.append((message_id, index))
        self.text.append(content)
        if latency is not None:
            self.latencies.append(latency)


@dataclass(frozen=True, slots=True)
class Account:
    """One reader's figures, all counted."""

    received: int
    lost: int
    twice: int
    disordered: int
    foreign: int
    changed: int

    @property
    def whole(self) -> bool:
        """Whether the reader saw exactly what was published."""
        return not (self.lost or self.twice or self.disordered or self.foreign or self.changed)


@dataclass(slots=True)
class Ledger:
    """Everything that was published: content and time by index, index by id."""

    index_of: dict[str, int] = field(default_factory=dict[str, int])
    content: dict[int, str] = field(default_factory=dict[int, str])
    sent_at: dict[int, float] = field(default_factory=dict[int, float])

    def sending(self, index: int, content: str, at: float) -> None:
        """A word is about to be published."""
        self.content[index] = content
        self.sent_at[index] = at

    def published(self, message_id: str, index: int) -> None:
        """The server has it."""
        self.index_of[message_id] = index

    def account(self, reading: Reading) -> Account:
        """Compare what a reader saw with what was published."""
        ids = [message_id for message_id, _ in reading.seen]
        known = set(ids) & self.index_of.keys()
        indices = [index for _, index in reading.seen]
        return Account(
            received=len(known),
            lost=len(self.index_of.keys() - known),
            twice=len(ids) - len(set(ids)),
            disordered=sum(b < a for a, b in pairwise(indices)),
            foreign=len(set(ids) - known),
            changed=sum(
                self.index_of.get(message_id, index) != index
                or self.content.get(index, content) != content
                for (message_id, index), content in zip(reading.seen, reading.text, strict=True)
            ),
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
        ledger: What was published.
        words: How many words there were to publish.
        readings: The reader that is cut first, then the others.
        reconnects: Times the first reader had to come back.
        rotations: Times its token had to be renewed.
    """
    wrong: list[str] = []
    if len(ledger.index_of) != words:
        wrong.append(f"{len(ledger.index_of):,} of {words:,} words were published")
    for reading in readings:
        account = ledger.account(reading)
        found = {
            "lost": account.lost,
            "seen twice": account.twice,
            "out of order": account.disordered,
            "never published": account.foreign,
            "altered": account.changed,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in found.items() if count)
        if told:
            wrong.append(f"{reading.name}: {told}")
        if reading.gaps:
            wrong.append(f"{reading.name}: {_times(reading.gaps, 'gap')} reported by the client")
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
        "published": len(ledger.index_of),
        "received": account.received,
        "lost": account.lost,
        "twice": account.twice,
        "reconnects": reading.reconnects,
        "rotations": reading.rotations,
    }
    return " · ".join(f"{name} {count:,}" for name, count in figures.items())
