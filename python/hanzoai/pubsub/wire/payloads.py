"""Checks and measures payloads before they are sent (HIP-56 Security 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_json

from hanzoai.pubsub.errors import InvalidPayload, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

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
            _check(data, 0)
        except _Culprit as culprit:
            field = f"{path}{culprit.path}"
            if culprit.is_deep and len(field) > _KEY_SHOWN:
                field = f"{field[:_KEY_SHOWN]}…"
            raise InvalidPayload(
                f"`{field}` {culprit.problem}.", remedy=culprit.remedy, topic=topic, field=field
            ) from None
    size = len(to_json(data))
    if size > limit:
        raise PayloadTooLarge(size=size, limit=limit, topic=topic, field=path)
    return size


class _Culprit(Exception):
    """A value that is not JSON; each container on the way out adds its part of the path."""

    def __init__(self, problem: str, remedy: str | None = None, *, is_deep: bool = False) -> None:
        super().__init__()
        self.path = ""
        self.problem = problem
        self.remedy = remedy
        self.is_deep = is_deep


_HARMLESS: Final = frozenset({bool, type(None)})


def _check(value: object, depth: int) -> None:
    # Most members need no further call. Their path is only put together for an error.
    if isinstance(value, dict):
        if depth == _DEPTH_MAX:
            raise _too_deep()
        for key, item in cast("Mapping[Any, Any]", value).items():
            if key.__class__ is not str or not key.isascii():
                _check_key(key)
            kind = item.__class__
            if (
                (kind is str and item.isascii())
                or (kind is int and _INT_MIN <= item <= _INT_MAX)
                or kind in _HARMLESS
            ):
                continue
            try:
                _check(item, depth + 1)
            except _Culprit as culprit:
                culprit.path = f".{key[:_KEY_SHOWN]}{culprit.path}"
                raise
    elif isinstance(value, list | tuple):
        if depth == _DEPTH_MAX:
            raise _too_deep()
        for index, item in enumerate(cast("list[Any]", value)):
            kind = item.__class__
            if (kind is str and item.isascii()) or kind in _HARMLESS:
                continue
            try:
                _check(item, depth + 1)
            except _Culprit as culprit:
                culprit.path = f"[{index}]{culprit.path}"
                raise
    elif isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            raise _Culprit("does not fit in 64 bits", "Send such a number as a string.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Culprit("is NaN or infinite", "Send None, or a string.")
    elif value is not None:
        # Loaded only for an error.
        from hanzoai.pubsub.wire.hints import hint_for

        kind = type(value).__name__
        raise _Culprit(f"is of type {kind}, which JSON does not support", hint_for(value))


def _too_deep() -> _Culprit:
    # Also ends the walk through a value that contains itself.
    return _Culprit(
        f"is nested deeper than {_DEPTH_MAX} levels",
        "Flatten it, or remove the cycle.",
        is_deep=True,
    )


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        kind = type(key).__name__
        raise _Culprit(f"has a key that is {kind}, not str", "Convert the keys to strings.")
    _check_text(key)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Culprit(
            "has an unpaired surrogate, which UTF-8 cannot encode",
            'Clean it with text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").',
        ) from None
