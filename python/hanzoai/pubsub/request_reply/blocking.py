"""`BlockingResponder`: the responder of the blocking client."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from hanzoai.pubsub.errors import ClosedError
from hanzoai.pubsub.runtime.environment import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from hanzoai.pubsub.request_reply.responder import Responder
    from hanzoai.pubsub.values import Duration


class BlockingResponder:
    """Answers requests until it is closed; a context manager. See ``Responder``."""

    def __init__(self, responder: Responder, call: Callable[..., Any]) -> None:
        self._responder = responder
        self._call = call

    @property
    def active(self) -> bool:
        """Whether it still accepts requests."""
        return self._responder.active

    def wait(self) -> Self:
        """Wait until the server has answered the subscription.

        Raises:
            PermissionDenied: You may not read any of the topics.
            OperationTimeout: No answer arrived in time.
        """

        async def joined() -> None:
            await self._responder

        self._call(joined)
        return self

    def close(self, timeout: Duration = 5.0) -> None:
        """Accept no more requests, and wait for running handlers; see ``Responder.close``."""
        self._call(lambda: self._responder.close(timeout))

    def __enter__(self) -> Self:
        return self.wait()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ClosedError, ForkedError):
            self._call(lambda: self._responder.__aexit__(exc_type, exc, traceback))

    def __repr__(self) -> str:
        return repr(self._responder).replace("<Responder", "<BlockingResponder")
