"""Shortens the traces of errors that Spark shows."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import PubSubError
from hanzoai.pubsub.spark.options import renamed

if TYPE_CHECKING:
    from types import TracebackType

    from hanzoai.pubsub.spark.options import Table


class brief(ContextDecorator):
    """Raises typed errors without the frames of this package.

    Spark prints a trace before its message. The message says what to do, and the frames would push
    it out of sight.

    Args:
        table: The options that the user gave to Spark: an error about one of them has its name in
            Spark. None if the user gave arguments of Python.
    """

    def __init__(self, table: Table | None = None) -> None:
        self._table = table

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
            said = error if self._table is None else renamed(error, self._table)
            raise said.with_traceback(None) from None
