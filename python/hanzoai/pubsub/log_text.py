"""Text of servers and other clients, as terminals and logs show it.

A control character could change a terminal, and a line end could forge a line of a log.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.errors import PubSubError

_LOGGED_MAX: Final = 300
"""Maximum characters of such a text in a log."""

ESCAPED: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Control characters, line ends and changes of direction, and how to show them."""


def log_text(text: str) -> str:
    """The text for a log: on one line, bounded, and writable in UTF-8."""
    shown = text.translate(ESCAPED).encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= _LOGGED_MAX else f"{shown[:_LOGGED_MAX]}…"


def log_error(error: PubSubError) -> PubSubError:
    """A copy of an error for a log, because its message and remedy may come from a server."""
    shown = copy.copy(error)
    shown.message, shown.remedy = log_text(error.message), log_text(error.remedy)
    return shown
