"""The parts of an answer: text and other parts, in order.

A part is a JSON object with a `type` and a `text` that may grow. A piece is one step of growth: a
string continues the text, an object with a `type` begins a part, and an object with `text` alone
continues the last part.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypeAlias, TypedDict, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class TextPart(TypedDict):
    """Plain text of the answer; ``type`` is ``text``."""

    type: str
    text: str


class ReasoningPart(TypedDict):
    """The reasoning of a model; ``type`` is ``reasoning``."""

    type: str
    text: str


class ToolCallPart(TypedDict):
    """A call of a tool; ``type`` is ``tool-call``, ``text`` the JSON of its arguments so far.

    ``partial_json(part["text"])`` returns their best value at any time.
    """

    type: str
    """``tool-call``."""
    id: str
    """Id of the call, for example that of the model."""
    name: str
    """Name of the tool."""
    text: str
    """JSON of the arguments so far."""


class CitationPart(TypedDict):
    """The source of something in the answer; ``type`` is ``citation``."""

    type: str
    """``citation``."""
    url: str
    """Address of the source."""
    title: NotRequired[str]
    """Title of the source."""


class ImagePart(TypedDict):
    """An image by its address; ``type`` is ``image``."""

    type: str
    """``image``."""
    url: str
    """Address of the image."""
    alt: NotRequired[str]
    """Text for readers who do not see the image."""


Part: TypeAlias = dict[str, Any]
"""A part as a reader sees it: its ``type``, its ``text`` if it has one, and its other fields."""

Piece: TypeAlias = (
    "str | Mapping[str, Any] | TextPart | ReasoningPart | ToolCallPart | CitationPart | ImagePart"
)
"""What a writer accepts: text, a new part, or ``{"text": ...}`` to continue the last part."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[^u])", re.DOTALL)
_CUT_ESCAPE: Final = re.compile(r"\\[^\"]*$")
_MARK: Final = re.compile(r'["{}\[\],]')


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def is_piece(value: object) -> TypeGuard[str | dict[str, Any]]:
    """Whether a value from the wire or from a program is a piece."""
    if isinstance(value, str):
        return True
    if not is_object(value) or not isinstance(value.get("text", ""), str):
        return False
    return isinstance(value.get("type"), str) or "text" in value


def is_parts(value: object) -> TypeGuard[list[Part]]:
    """Whether a value from the wire is a list of parts."""
    return is_list(value) and all(
        is_object(part) and isinstance(part.get("type"), str) and is_piece(part) for part in value
    )


def grow(parts: list[Part], piece: str | Mapping[str, Any]) -> None:
    """Apply a piece to the parts of an answer."""
    last = parts[-1] if parts else None
    if isinstance(piece, str):
        if last is not None and last["type"] == "text":
            last["text"] = last.get("text", "") + piece
        else:
            parts.append({"type": "text", "text": piece})
    elif "type" in piece:
        parts.append(dict(piece))
    elif last is not None:
        last["text"] = last.get("text", "") + piece["text"]
    else:
        parts.append({"type": "text", "text": piece["text"]})


def add_piece(pieces: list[Any], piece: str | Mapping[str, Any]) -> None:
    """Append a piece to others; joins it with the last one if both continue the text."""
    if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
        pieces[-1] += piece
    else:
        pieces.append(piece if isinstance(piece, str) else dict(piece))


def text_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of an answer: the joined text of its parts of type ``text``."""
    return "".join(part.get("text", "") for part in parts if part["type"] == "text")


def body_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the fields of an answer in a frame: `text` if it is only text, otherwise `parts`."""
    plain = not parts or (len(parts) == 1 and parts[0].keys() == {"type", "text"})
    if plain and (not parts or parts[0]["type"] == "text"):
        return {"text": text_of(parts)}
    return {"parts": [dict(part) for part in parts]}


def parts_of(data: Mapping[str, Any]) -> list[Part] | None:
    """Return the parts in a frame; None if it contains no answer."""
    parts, text = data.get("parts"), data.get("text", data.get("content"))
    if is_parts(parts):
        return [dict(part) for part in parts]
    if isinstance(text, str):
        return [{"type": "text", "text": text}] if text else []
    return None


def split_pair(text: str) -> tuple[str, str]:
    """Make text well-formed: holds back half of a surrogate pair at its end.

    Returns:
        The text, with U+FFFD for any other half, and the half that is held back.
    """
    if _SURROGATE.search(text) is None:
        return text, ""
    held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    whole = text[: len(text) - len(held)].encode("utf-16-le", "surrogatepass")
    return whole.decode("utf-16-le", "replace"), held


def partial_json(text: str) -> Any:
    """Parse JSON that is still being written, as far as possible; None if there is no value yet.

    An open string ends with the text. An incomplete number, word or key is left out.
    """
    closers = ""
    in_string = False
    safe: list[tuple[int, str]] = []  # the last two possible ends of the text, and their closers
    masked = _ESCAPE.sub(lambda escape: "_" * len(escape[0]), text)
    for found in _MARK.finditer(masked):
        mark, at = found[0], found.start()
        if mark == '"':
            in_string = not in_string
        elif in_string:
            continue
        elif mark in "}]":
            closers = closers[1:]
        else:
            if mark != ",":
                closers = ("}" if mark == "{" else "]") + closers
                at += 1
            safe = [(at, closers), *safe[:1]]
    cut = text[: len(_CUT_ESCAPE.sub("", masked))] + '"' if in_string else text
    for one in [cut + closers, *(text[:at] + ends for at, ends in safe)]:
        try:
            return json.loads(one, parse_constant=_reject)
        except (ValueError, RecursionError):
            continue
    return None


def _reject(constant: str) -> Any:
    """Python also reads constants that are not JSON, such as NaN."""
    raise ValueError(constant)


__all__ = [
    "CitationPart",
    "ImagePart",
    "Part",
    "Piece",
    "ReasoningPart",
    "TextPart",
    "ToolCallPart",
    "add_piece",
    "body_of",
    "grow",
    "is_list",
    "is_object",
    "is_parts",
    "is_piece",
    "partial_json",
    "parts_of",
    "split_pair",
    "text_of",
]
