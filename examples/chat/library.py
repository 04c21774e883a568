"""The text that the chat answers from, and the search in it. Pure, apart from reading the file."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

TEXT: Final = Path(__file__).with_name("text.txt")
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        """a about all an and are as at be but by can could did do does for from had has have how i
        in is it its me more of on or say tell text that the their them there they this to us was
        were what when where which who why will with would you""",
    )
)


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph of the text.

    Attributes:
        number: Its place in the text; the first paragraph after the title is 1.
        text: The paragraph.
    """

    number: int
    text: str


@cache
def title() -> str:
    """The title of the text."""
    return TEXT.read_text(encoding="utf-8").split("\n", 1)[0].title().replace(" Of ", " of ")


@cache
def passages() -> tuple[Passage, ...]:
    """Every paragraph of the text, in order."""
    _, *paragraphs = re.split(r"\n{2,}", TEXT.read_text(encoding="utf-8").strip())
    return tuple(Passage(number, text) for number, text in enumerate(paragraphs, start=1))


def keywords(question: str) -> list[str]:
    """The words of a question to search for: each once, without common words, at most 8."""
    words = re.findall(r"[^\W_]{2,}", question.lower())
    return [word for word in dict.fromkeys(words) if word not in _COMMON][:8]


def search(words: list[str]) -> list[Passage]:
    """Every passage, the best match first.

    A rare word counts more than a frequent one. Passages that match equally keep their order.
    """
    counts = [Counter(_stems(passage.text)) for passage in passages()]
    weights = {
        stem: math.log(1 + len(counts) / (1 + sum(stem in count for count in counts)))
        for stem in map(_stem, words)
    }
    scores = [
        sum(weight * min(count[stem], 3) for stem, weight in weights.items()) for count in counts
    ]
    ranked = sorted(range(len(counts)), key=lambda at: (-scores[at], at))
    return [passages()[at] for at in ranked]


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in re.findall(r"[^\W_]+", text.lower())]


def _stem(word: str) -> str:
    return re.sub(r"(?<=\w{3})(ies|es|s|ed|ing)$", "", word)
