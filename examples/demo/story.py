"""What is streamed, and how fast."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = Path(__file__).parent.parent / "chat" / "text.txt"


@dataclass(frozen=True, slots=True)
class Word:
    """One token of the stream; the contents, joined, are the text again."""

    index: int
    content: str


def load_words(count: int | None = None, path: Path = TEXT) -> list[Word]:
    """The first words of the text, each with the space that follows it."""
    pieces = re.findall(r"\S+\s*", path.read_text(encoding="utf-8"))
    return [Word(index, piece) for index, piece in enumerate(pieces[:count])]


def rhythm(seed: int, rate: float) -> Iterator[float]:
    """Seconds between words, forever: uneven like a model's, `rate` words a second on average."""
    source = random.Random(seed)
    while True:
        # Mostly a little early or late, now and then a pause to think, made up for afterwards.
        for _ in range(source.randint(12, 40)):
            yield source.gammavariate(4, 0.9 / (4 * rate))
        yield source.uniform(1, 4) / rate
