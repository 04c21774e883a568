"""Names what is wrong with an answer that a program gives to a writer."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterable, Generator, Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from hanzoai.pubsub.errors import InvalidOption, InvalidPayload
from hanzoai.pubsub.settings.checks import kind
from hanzoai.pubsub.streams.parts import is_object, is_piece
from hanzoai.pubsub.wire.payloads import check_data

_BYTES: Final = (bytes, bytearray, memoryview)
_WHOLE: Final = (*_BYTES, Mapping, BaseModel)


def check_source(
    name: str, source: object, *, blocking: bool = False, events: bool = False
) -> None:
    """An iterator of pieces or events.

    Args:
        name: Name of the argument.
        source: What the program gave.
        blocking: Whether only plain iterators can be read.
        events: Whether it yields events of a model, and not pieces.

    Raises:
        InvalidOption: It cannot be iterated over.
    """
    given = kind(source)
    is_whole = _is_whole(source, events=events)
    is_plain = _is_iterable(source) and not is_whole
    asynchronous = isinstance(source, AsyncIterable)
    if is_plain or (asynchronous and not blocking):
        return
    if isinstance(source, _BYTES):
        remedy = "Decode it, and pass it to `write`."
    elif is_whole and not asynchronous:
        remedy = "It is a whole answer: request it with `stream=True`, or pass its text to `write`."
    elif asynchronous:
        remedy = "Use the blocking client of the model, or `PubSubClient`."
    elif inspect.isawaitable(source):
        remedy = "Await it first, or use the blocking client of the model."
        if not blocking:
            remedy = "Await it first, for example `await model.responses.create(...)`."
    elif callable(source):
        remedy = "Call it, and pass what it returns."
    else:
        remedy = "Pass the stream of the model; if it is a context manager, enter it first."
    wanted = "a plain iterator" if blocking else "an iterator"
    raise InvalidOption(f"`{name}` is {given}, not {wanted}.", remedy=remedy, field=name)


def close_source(source: Iterator[object]) -> None:
    """Close an iterator that the program has left, if it is a generator."""
    if isinstance(source, Generator):
        source.close()


def _is_iterable(source: object) -> bool:
    return isinstance(source, Iterable)


def _is_whole(source: object, *, events: bool) -> bool:
    """Whether iterating over an answer gives only its keys, bytes, fields or characters."""
    whole = (*_WHOLE, str) if events else _WHOLE
    return isinstance(source, whole) and not isinstance(source, Iterator)


def invalid_piece(piece: object, topic: str) -> InvalidPayload:
    """The error for a piece that the writer rejects; does not show it."""
    problem = f"The piece is {kind(piece)}, not text or a part."
    if is_object(piece) and "type" in piece:
        try:
            check_data(piece, sys.maxsize, topic=topic, path="piece")
        except InvalidPayload as error:
            return error
    if is_piece(piece):
        problem = "The text has half of a surrogate pair."
        remedy = "Decode bytes incrementally, so that no character is cut."
    elif is_object(piece):
        problem = "The part has neither a `type` nor a `text`, or one of them is not text."
        remedy = 'Write {"type": ...} for a new part, or {"text": ...} to continue the last one.'
    elif isinstance(piece, _BYTES):
        remedy = "Decode it incrementally, for example with `codecs.getincrementaldecoder`."
    elif piece is None:
        remedy = "Skip it: models send chunks without text. `pipe(from_openai(stream))` does so."
    else:
        remedy = "Write its text, or pass the stream of the model through `from_openai` or similar."
    return InvalidPayload(problem, topic=topic, remedy=remedy, field="piece")


__all__ = ["check_source", "close_source", "invalid_piece"]
