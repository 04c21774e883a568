"""Parses times in the formats of the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.errors import InvalidOption

if TYPE_CHECKING:
    from hanzoai.pubsub.values import Since


_EARLIEST: Final = 10**11
"""The earliest accepted Unix time in milliseconds, in 1973: lower numbers are probably seconds."""


def unix_ms(value: Since, now_ms: int, field: str = "since") -> int:
    """Read a time.

    Args:
        value: Unix milliseconds, an aware datetime, or a timedelta before now; the sign of a
            timedelta is ignored, because nothing can be replayed from the future.
        now_ms: Current Unix milliseconds.
        field: Name of the option for the error.

    Raises:
        InvalidOption: It is none of these, is before 1970, or is so early that it must be in
            seconds.
    """
    given: object = cast("object", value)
    if isinstance(given, timedelta):
        ms = now_ms - round(abs(given).total_seconds() * 1000)
    elif isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidOption(
                f"`{field}` is a datetime without a time zone.",
                remedy="Use datetime.now(UTC), or pass Unix milliseconds.",
                field=field,
            )
        ms = round(given.timestamp() * 1000)
    elif isinstance(given, int) and not isinstance(given, bool):
        ms = given
    else:
        raise InvalidOption(
            f"`{field}` is {type(given).__name__}.",
            remedy="Pass Unix milliseconds, a datetime, or a timedelta before now.",
            field=field,
        )
    if ms != 0 and not _EARLIEST <= ms < 2**53:
        raise InvalidOption(
            f"`{field}` is {ms}, which is not a Unix time in milliseconds.",
            remedy="Pass milliseconds, round(time.time() * 1000) for now; 0 for the beginning.",
            field=field,
        )
    return ms
