"""The text that is streamed, and the pauses between its words."""

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
    """One token of the stream. Joined, the contents are the text."""

    index: int
    content: str


def load_words(count: int | None = None, path: Path = TEXT) -> list[Word]:
    """Return the first words of the text, each with the space that follows it."""
    pieces = re.findall(r"\S+\s*", path.read_text(encoding="utf-8"))
    return [Word(index, piece) for index, piece in enumerate(pieces[:count])]


def rhythm(seed: int, rate: float) -> Iterator[float]:
    """Yield pauses in seconds, uneven like a model's, for `rate` words per second on average."""
    source = random.Random(seed)
    while True:
        # Most pauses vary a little. A long pause now and then is made up for by the others.
        for _ in range(source.randint(12, 40)):
            yield source.gammavariate(4, 0.9 / (4 * rate))
        yield source.uniform(1, 4) / rate
