"""`Responder`: answers the requests of a topic with what a handler returns."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Self

from hanzoai.pubsub.errors import (
    ClosedError,
    Conflict,
    InvalidTopic,
    PubSubError,
    ReplyError,
)
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.request_reply.messages import (
    error_reply,
    is_own_reply_topic,
    reply,
    reply_to_of,
)
from hanzoai.pubsub.runtime.handlers import call, check_allow, decide
from hanzoai.pubsub.runtime.tasks import Tasks
from hanzoai.pubsub.settings.checks import check_function, check_seconds, check_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from hanzoai.pubsub.request_reply.client import Client
    from hanzoai.pubsub.runtime.handlers import Report
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.tracing import Tracing
    from hanzoai.pubsub.values import Duration, Gap, Message, Topics

logger = logging.getLogger("hanzoai.pubsub")

_CONCURRENCY_MAX: Final = 1_000
_CLOSE_TIMEOUT: Final = 5.0


class Responder:
    """Answers requests until it is closed.

    ``PubSubClient.respond`` returns it::

        async with ps.respond("demo.sum", lambda request: sum(request.data)):
            await stop.wait()

    Awaiting it waits until the server has answered the subscription. If this fails or is cancelled,
    the responder is closed.
    """

    def __init__(
        self,
        client: Client,
        topics: Topics,
        handler: Callable[[Message], Awaitable[Any] | Any],
        *,
        type: str,
        concurrency: int,
        allow: Callable[[Message, str], bool] | None,
        report: Report,
        tracing: Tracing | None = None,
    ) -> None:
        check_function("handler", handler)
        check_allow(allow, arguments=2)
        check_whole("concurrency", concurrency, high=_CONCURRENCY_MAX, unit="a number of requests")
        self._client = client
        self._handler = handler
        self._type = type
        self._allow = allow or is_own_reply_topic
        self._report = report
        self._tracing = tracing
        self._turns = asyncio.Semaphore(concurrency)
        self._tasks = Tasks(client.clock)
        self._warned = False
        self._missed = False
        self._subscription: Subscription = client.subscribe(topics, on_gap=self._miss)
        self._tasks.spawn(self._read(), "responder")

    @property
    def active(self) -> bool:
        """Whether it still accepts requests."""
        return self._subscription.active

    async def close(self, timeout: Duration = _CLOSE_TIMEOUT) -> None:
        """Accept no more requests, and wait for running handlers.

        Idempotent.

        Args:
            timeout: Seconds to wait; handlers that are still running then are cancelled. 0 cancels
                immediately.
        """
        seconds = check_seconds("timeout", timeout, low=0.0)
        await self._subscription.unsubscribe()
        await self._tasks.join(seconds)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._joined().__await__()

    async def __aenter__(self) -> Self:
        return await self._joined()

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.close(_CLOSE_TIMEOUT if exc_type is None else 0)

    def __repr__(self) -> str:
        return repr(self._subscription).replace("<Subscription", "<Responder")

    async def _joined(self) -> Self:
        try:
            await self._subscription
        except BaseException:
            # `await ps.respond(...)` returned nothing to close it with.
            await self.close(0)
            raise
        return self

    async def _read(self) -> None:
        try:
            async for message in self._subscription:
                reply_to = reply_to_of(message)
                if message.type != self._type or reply_to is None:
                    continue
                await self._turns.acquire()
                task = self._tasks.spawn(self._answer(message, reply_to), "request")
                task.add_done_callback(lambda _: self._turns.release())
        except ClosedError:
            return
        except PubSubError as error:
            self._report(error, self._subscription.topics[0])

    async def _answer(self, request: Message, reply_to: str) -> None:
        if not self._allows(request, reply_to):
            return
        if self._tracing is None:
            await self._reply(request, reply_to)
            return
        # The reply is published inside the span, so it belongs to the trace of the request.
        with self._tracing.processing(request):
            await self._reply(request, reply_to)

    async def _reply(self, request: Message, reply_to: str) -> None:
        try:
            answer = reply(request, await call(self._handler, request))
        except ReplyError as error:
            answer = error_reply(request, error)
        except Exception as error:
            if self._tracing is not None:
                self._tracing.failed(error)
            error.add_note(f"request: {log_text(request.id)}")
            self._report(error, request.topic)
            answer = error_reply(request, ReplyError())
        if not await self._publish(request, reply_to, answer):
            # Without an answer the request times out.
            await self._publish(request, reply_to, error_reply(request, ReplyError()))

    async def _publish(self, request: Message, reply_to: str, answer: dict[str, Any]) -> bool:
        """Publish an answer; returns False if it is not JSON or too large."""
        try:
            await self._client.publish(reply_to, answer)
        except Conflict:
            logger.debug("Another responder has answered the request %s", log_text(request.id))
        except ClosedError:
            pass
        except (ValueError, PubSubError) as error:
            error.add_note(f"request: {log_text(request.id)}")
            self._report(error, reply_to)
            return isinstance(error, InvalidTopic) or not isinstance(error, ValueError)
        return True

    def _allows(self, request: Message, reply_to: str) -> bool:
        try:
            allowed = decide(self._allow, request, reply_to)
        except Exception as error:
            # Without a decision there is no topic to answer on, not even with an error.
            error.add_note(f"request: {log_text(request.id)}")
            self._report(error, request.topic)
            return False
        if not allowed:
            self._warn(request, reply_to)
        return allowed

    def _miss(self, gap: Gap) -> None:
        """Log the first gap: nothing remains to be answered, the senders have timed out."""
        if not self._missed:
            self._missed = True
            logger.warning(
                "A responder may have missed requests on topic %s (%s). Their senders get "
                "RequestTimeout. Further gaps of this responder are not logged.",
                log_text(gap.topic),
                gap.reason,
            )

    def _warn(self, request: Message, reply_to: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "The request %s on topic %s asks for its reply on %s, which belongs to neither the "
                "topic nor the sender; this responder does not answer such requests. Pass `allow` "
                "to answer it.",
                log_text(request.id),
                log_text(request.topic),
                log_text(reply_to),
            )


__all__ = ["Responder"]
