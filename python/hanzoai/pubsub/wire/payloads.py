"""Checks and measures payloads before they are sent (HIP-56 Security 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_json

from hanzoai.pubsub.errors import InvalidPayload, PayloadTooLarge

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import Publication

_INT_MAX: Final = 2**64 - 1
_INT_MIN: Final = -(2**63)
_DEPTH_MAX: Final = 100
_KEY_SHOWN: Final = 64


def check_publication(publication: Publication, limit: int) -> int:
    """Check a publication.

    Args:
        publication: The message to publish.
        limit: Maximum bytes of JSON of `data`.

    Returns:
        Bytes of JSON of `data` and `meta`: the size of the message in a queue.

    Raises:
        InvalidPayload: `data` or `meta` is not plain JSON; `field` is the path of the member.
        PayloadTooLarge: `data` has more than `limit` bytes of JSON.
    """
    size = check_data(publication.data, limit, topic=publication.topic)
    if publication.meta is None:
        return size
    return size + check_data(publication.meta, limit, topic=publication.topic, path="meta")


def check_data(data: object, limit: int, *, topic: str | None = None, path: str = "data") -> int:
    """Check one payload and measure it.

    Plain JSON is: None, bool, str, int of 64 bits, finite float, list or tuple, and dict with str
    keys, up to 100 levels deep.

    Args:
        data: The payload.
        limit: Maximum bytes of JSON.
        topic: Its topic, for the error.
        path: Its name in the error.

    Returns:
        Size of its compact UTF-8 JSON, in bytes.

    Raises:
        InvalidPayload: It is not plain JSON; `field` is the path of the invalid member.
        PayloadTooLarge: It is over the limit.
    """
    flat = data.__class__ is dict
    if flat:
        # Nearly every payload is a dict of short values and needs no further call.
        for key, item in cast("dict[Any, Any]", data).items():
            kind = item.__class__
            if not (
                key.__class__ is str
                and key.isascii()
                and (
                    (kind is str and item.isascii())
                    or (kind is int and _INT_MIN <= item <= _INT_MAX)
                    or kind in _HARMLESS
                )
            ):
                flat = False
                break
    if not flat:
        try:
            _check(data, path, 0)
        except _Culprit as culprit:
            raise InvalidPayload(
                f"`{culprit.path}` {culprit.problem}.",
                remedy=culprit.remedy,
                topic=topic,
                field=culprit.path,
            ) from None
    size = len(to_json(data))
    if size > limit:
        raise PayloadTooLarge(size=size, limit=limit, topic=topic, field=path)
    return size


class _Culprit(Exception):
    def __init__(self, path: str, problem: str, remedy: str | None = None) -> None:
        super().__init__()
        self.path = path
        self.problem = problem
        self.remedy = remedy


def _check(value: object, path: str, depth: int) -> None:
    if value is None or value is True or value is False:
        return
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value, path)
    elif isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            raise _Culprit(path, "does not fit in 64 bits", "Send such a number as a string.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Culprit(path, "is NaN or infinite", "Send None, or a string.")
    elif isinstance(value, dict):
        _check_depth(path, depth)
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise _Culprit(
                    path,
                    f"has a key that is {type(key).__name__}, not str",
                    "Convert the keys to strings.",
                )
            if not key.isascii():
                _check_text(key, path)
            if item.__class__ in _HARMLESS:
                continue
            _check(item, f"{path}.{key[:_KEY_SHOWN]}", depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth(path, depth)
        for index, item in enumerate(cast("list[object]", value)):
            if item.__class__ in _HARMLESS:
                continue
            _check(item, f"{path}[{index}]", depth + 1)
    else:
        # Loaded only for an error.
        from hanzoai.pubsub.wire.hints import hint_for

        raise _Culprit(
            path, f"is of type {type(value).__name__}, which JSON does not support", hint_for(value)
        )


_HARMLESS: Final = frozenset({bool, type(None)})


def _check_depth(path: str, depth: int) -> None:
    # Also ends the walk through a value that contains itself.
    if depth >= _DEPTH_MAX:
        shown = path if len(path) <= _KEY_SHOWN else f"{path[:_KEY_SHOWN]}…"
        raise _Culprit(shown, f"is nested deeper than {_DEPTH_MAX} levels", "Flatten it.")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Culprit(
            path,
            "has an unpaired surrogate, which UTF-8 cannot encode",
            'Clean it with text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").',
        ) from None
