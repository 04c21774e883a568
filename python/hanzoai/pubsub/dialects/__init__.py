"""Dialects of the protocol: adapters between codec and session.

A dialect gives an older server the face of a current one, so that the session knows only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import AuthOkFrame

_CURRENT: Final = frozenset({"ref", "ack", "seq", "idempotency", "batch"})


def needs_dialect(frame: AuthOkFrame) -> bool:
    """Whether the server lacks what the session takes for granted."""
    return frame.version is None or not _CURRENT.issubset(frame.features or ())
