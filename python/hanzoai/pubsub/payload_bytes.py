"""Converts bytes of byte protocols to JSON of HIP-56 and back, without loss.

Bytes become the first of these that fits:

1. an object or array whose compact encoding is exactly these bytes: that JSON;
2. valid UTF-8: a JSON string;
3. anything else: ``{"$base64": "…"}``.

JSON becomes bytes: a string becomes its UTF-8, ``{"$base64": "…"}`` the encoded bytes, other values
compact JSON. So ``to_bytes(to_json(data)) == data`` for all bytes.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

BASE64: Final = "$base64"
"""The only key of an object that represents bytes."""

DEPTH_MAX: Final = 100
"""Maximum nesting; deeper JSON becomes a string, as not every JSON parser reads it."""

# Strict: what `b64decode` accepts depends on the version of Python.
_BASE64_TEXT: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_OPENING: Final = frozenset(b"{[")
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode


def value_of(data: bytes) -> Any:
    """The JSON value of bytes.

    Args:
        data: A payload of a byte protocol.

    Returns:
        A dict or list, a string, or ``{"$base64": "…"}``.
    """
    found = _document(data)
    return _text(data) if found is None else found


def bytes_of(value: Any) -> bytes:
    """The bytes of a JSON value.

    Raises:
        ValueError: The value cannot be written as JSON: NaN, an infinity, or a lone surrogate.
        TypeError: It is not a JSON value.
    """
    if isinstance(value, str):
        return value.encode()
    plain = _plain(value)
    return _ENCODE(value).encode() if plain is None else plain


def to_json(data: bytes) -> bytes:
    """Like `value_of`, encoded as JSON; bytes that are already JSON are not encoded again."""
    if _document(data) is not None:
        return data
    return _ENCODE(_text(data)).encode()


def to_bytes(encoded: bytes) -> bytes:
    """Like `bytes_of`, for a value that is encoded as compact JSON."""
    if encoded[:1] == b'"':
        return cast("str", json.loads(encoded)).encode()
    if encoded.startswith(b'{"$base64":'):
        plain = _plain(json.loads(encoded))
        if plain is not None:
            return plain
    return encoded


def _text(data: bytes) -> str | Mapping[str, str]:
    """The JSON value of bytes that are not a JSON document."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: b64encode(data).decode()}


def _document(data: bytes) -> Any:
    """The object or array whose compact encoding is these bytes; None for other bytes."""
    if not data or data[0] not in _OPENING:
        return None
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _depth(data) > DEPTH_MAX:
        return None
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
        if _ENCODE(value).encode() != data or _plain(value) is not None:
            return None
    except (ValueError, RecursionError):
        return None
    return value


def _plain(value: Any) -> bytes | None:
    """The bytes of ``{"$base64": "…"}``; None for another value."""
    if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) != 1:
        return None
    text = cast("dict[str, Any]", value).get(BASE64)
    if not isinstance(text, str) or len(text) % 4 or not _BASE64_TEXT.fullmatch(text):
        return None
    return b64decode(text)


def _depth(data: bytes) -> int:
    """Nesting depth of valid JSON."""
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(1 if each in _OPENING else -1 for each in brackets))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
