"""Validates arguments of SP sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import InvalidOption, InvalidPayload
from hanzoai.pubsub.settings.checks import kind

if TYPE_CHECKING:
    from hanzoai.pubsub.links.unparsed import Bytes


def at_least_one(field: str, value: object) -> int:
    """A whole number of at least 1.

    Raises:
        InvalidOption: It is something else; `field` is its name.
    """
    if not isinstance(value, int):
        raise InvalidOption(f"{field} is {kind(value)}, not an int.", field=field)
    if value < 1:
        raise InvalidOption(f"{field} is {value}; it must be at least 1.", field=field)
    return value


def message_bytes(body: Bytes) -> bytes:
    """A copy of a message.

    Raises:
        InvalidPayload: It is not bytes.
    """
    return _copy(body, InvalidPayload, "body", "The message is {}; SP carries bytes.")


def prefix_bytes(prefix: Bytes) -> bytes:
    """A copy of a prefix.

    Raises:
        InvalidOption: It is not bytes.
    """
    return _copy(prefix, InvalidOption, "prefix", "The prefix is {}, not bytes.")


def _copy(
    value: Bytes, error: type[InvalidOption | InvalidPayload], field: str, problem: str
) -> bytes:
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise error(
            problem.format(kind(value)),
            field=field,
            remedy="Pass bytes; encode text with str.encode, and objects with json.dumps.",
        ) from None
