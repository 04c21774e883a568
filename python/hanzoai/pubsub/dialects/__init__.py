"""Dialects of the protocol: adapters between codec and session.

A dialect makes an older server look like a current one, so that the session supports only current
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import AuthOkFrame

_CURRENT: Final = frozenset({"ref", "ack", "seq", "idempotency", "batch"})


def needs_dialect(frame: AuthOkFrame) -> bool:
    """Whether the server lacks features that the session requires."""
    return frame.version is None or not _CURRENT.issubset(frame.features or ())
