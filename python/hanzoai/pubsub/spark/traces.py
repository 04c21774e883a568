"""Shortens the traces of errors that Spark shows."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import PubSubError

if TYPE_CHECKING:
    from types import TracebackType


class brief(ContextDecorator):
    """Raises typed errors without the frames of this package.

    Spark prints a trace before its message. The message says what to do, and the frames would push
    it out of sight.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise a typed error again, without its trace."""
        if isinstance(error, PubSubError):
            raise error.with_traceback(None) from None
