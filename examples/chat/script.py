"""A simple model for the answers, which needs no account. Pure.

Like a language model, it continues a text: the next piece depends on the question and on the parts
so far. So a process that takes over an answer continues it at the right word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from examples.chat.library import Passage, keywords, search, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.streams import Part, Piece

PASSAGES: Final = 2
"""Passages in an answer without requests of readers."""
MOST: Final = 6
"""Maximum passages in an answer."""
STEERS: Final = ("shorter", "more")
"""Requests that a reader can send while the answer is written."""
_CHUNK: Final = 6
"""Characters of the arguments of a tool call per piece."""


@dataclass(slots=True)
class _Plan:
    """The parts of an answer, and the position up to which they are written."""

    parts: list[dict[str, Any]]
    ranked: list[Passage]
    used: int
    at: int = 0
    offset: int = 0

    def written(self, part: Part) -> None:
        """Continue after this part, which is already written."""
        if part["type"] == "steer":
            self.steer(part.get("text", ""))
            return
        text = self.parts[self.at].get("text", "") if self.at < len(self.parts) else ""
        self.offset += len(part.get("text", ""))
        if self.offset >= len(text):
            self.at, self.offset = self.at + 1, 0

    def steer(self, wish: str) -> None:
        """Change the parts that are not written yet."""
        if wish == "more" and self.used < min(MOST, len(self.ranked)):
            self.parts += _quote(self.ranked[self.used])
            self.used += 1
        elif wish == "shorter":
            last = next(
                (
                    at
                    for at in range(max(self.at, 3), len(self.parts))
                    if self.parts[at]["type"] == "text"
                ),
                None,
            )
            if last is not None:
                whole = self.parts[last]["text"]
                begun = self.offset if last == self.at else 0
                end = re.compile(r"[.!?](?=\s|$)").search(whole, max(0, begun - 1))
                cut = whole[: end.end()] if end else whole
                self.parts[last] = {"type": "text", "text": cut}
                if begun >= len(cut):
                    self.at, self.offset = last + 1, 0
                del self.parts[last + 2 :]

    def next(self) -> Piece | None:
        """The next piece; None at the end."""
        if self.at >= len(self.parts):
            return None
        part = self.parts[self.at]
        text = part.get("text")
        if text is None:
            return part
        if part["type"] == "text":
            found = re.compile(r"\S+\s*|\s+").match(text, self.offset)
            return found[0] if found else None
        chunk = text[self.offset : self.offset + _CHUNK]
        return {"text": chunk} if self.offset else {**part, "text": chunk}


def next_piece(question: str, written: Sequence[Part]) -> Piece | None:
    """The piece that continues an answer.

    Args:
        question: What a user asked.
        written: The parts of the answer so far, with what readers steered.

    Returns:
        Text, a part, or more of a tool call; None where the answer is complete.
    """
    plan = _plan(question)
    for part in written:
        plan.written(part)
    return plan.next()


@lru_cache(maxsize=64)
def _ranked(words: tuple[str, ...]) -> list[Passage]:
    """What the search finds, kept: an answer asks for each of its words."""
    return search(list(words))


def _plan(question: str) -> _Plan:
    words = keywords(question)
    ranked = _ranked(tuple(words))
    chosen = ranked[:PASSAGES]
    arguments = {"query": question.strip()[:200], "words": words, "passages": PASSAGES}
    found = [{"passage": passage.number, "words": len(passage.text.split())} for passage in chosen]
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": f"“{question.strip()[:200]}” I search the text for that. "},
        {
            "type": "tool-call",
            "id": "search-1",
            "name": "search_text",
            "text": json.dumps(arguments, ensure_ascii=False),
        },
        {"type": "tool-result", "id": "search-1", "output": found},
    ]
    for passage in chosen:
        parts += _quote(passage)
    return _Plan(parts, ranked, len(chosen))


def _quote(passage: Passage) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": passage.text},
        {
            "type": "citation",
            "url": f"text.txt#{passage.number}",
            "title": f"{title()}, passage {passage.number}",
        },
    ]
