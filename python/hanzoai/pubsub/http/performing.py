"""Performs calls of the HTTP API on asyncio: `httpx` sends them, `tenacity` repeats them.

A call is repeated until its timeout: after an answer that asks to wait (429, 503), after a failed
connection, and after a lost answer if the request is idempotent. The wait is `Retry-After` or the
backoff with full jitter, whichever is longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
)

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import (
    AuthError,
    ClosedError,
    ConnectionFailed,
    OperationTimeout,
    ProtocolError,
    PubSubError,
)
from hanzoai.pubsub.http.address import doubt_address, doubt_port
from hanzoai.pubsub.http.connection import LOST, authorization, body_of, make_client
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.problems import body_without_token, describe_answer, read_error
from hanzoai.pubsub.http.status import remedy_of, why_no_proxy, why_unreachable, without_frames
from hanzoai.pubsub.randomness import RANDOM
from hanzoai.pubsub.settings.proxies import host_of, http_proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.http.calls import Call
    from hanzoai.pubsub.settings.options import ClientOptions

T = TypeVar("T")

_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_NOT_DONE: Final = frozenset({429, 503})
"""Statuses with which the server reports that it did nothing and a later attempt may succeed."""

_END: Final = 1.0
"""Seconds for cancelled calls to end."""


class Tokens(Protocol):
    """The source of tokens for requests."""

    async def current(self) -> str:
        """A token that is valid as far as known."""
        ...

    async def replace(self, rejected: str) -> str | None:
        """Another token, after the server rejected `rejected`; None if there is no other."""
        ...

    def accepted(self) -> None:
        """The server did not reject the last token."""
        ...


class _Failed(Exception):
    """One attempt did not succeed.

    Attributes:
        error: What to raise if it was the last.
        again: Whether it may be repeated.
        unknown: Whether the server may have performed it.
    """

    def __init__(self, error: PubSubError, *, again: bool, unknown: bool) -> None:
        super().__init__()
        self.error = error
        self.again = again
        self.unknown = unknown


@dataclass(slots=True)
class _Run:
    """All attempts of a call.

    Attributes:
        asked: Whether the request of this attempt may have reached the server.
        unknown: Whether the server may have performed an earlier attempt.
    """

    asked: bool = False
    unknown: bool = False


class Performer:
    """Performs calls of the HTTP API.

    Args:
        options: `http_url`, `operation_timeout`, `rest_attempts`, `retry`, `max_frame`
            and those of the connection are used.
        tokens: Called before each request; a rejected token is replaced once.
        clock: Sleeps between attempts.
        random: Numbers from 0 up to 1, for the jitter.
        transport: Transport of the requests, instead of the network.

    Attributes:
        features: Features of the peer from `auth.ok`; None if unknown. A publish whose answer was
            lost is not repeated if the peer lacks `idempotency`.
    """

    def __init__(
        self,
        options: ClientOptions,
        tokens: Tokens,
        clock: Clock,
        *,
        random: Callable[[], float] = RANDOM.random,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = options
        self._tokens = tokens
        self._clock = clock
        self._random = random
        self._transport = transport
        parts = urlsplit(options.http_url)
        self._host, self._port, self._netloc = parts.hostname or "", parts.port, parts.netloc
        self._made: httpx.AsyncClient | None = None
        self._closed = False
        self._running: dict[asyncio.Timeout, bool] = {}
        self._quiet = asyncio.Event()
        self.features: frozenset[str] | None = None

    @property
    def client(self) -> httpx.AsyncClient:
        """The HTTP client, built at first use.

        Raises:
            ClosedError: `close` was called.
            ConnectionFailed: The proxy cannot be used, or the host cannot exist.
        """
        if self._closed:
            raise ClosedError
        if self._made is None:
            try:
                self._made = make_client(self._options, self._transport)
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                if isinstance(error.__context__ or error, UnicodeError):  # of the host
                    reason = why_unreachable(error, self._host)
                else:
                    reason = why_no_proxy(error)
                raise ConnectionFailed(reason, remedy=remedy_of(reason)) from None
        return self._made

    async def close(self, timeout: float = 0.0) -> None:
        """End every call, then close the connections. Idempotent.

        Args:
            timeout: Seconds for publishes in progress; other calls end immediately.
        """
        self._closed = True
        self._cut(publishes=False)
        try:
            await self._until_quiet(timeout)
        finally:  # also when cancelled: otherwise, sockets stay open
            self._cut(publishes=True)
            await self._until_quiet(_END)
            made, self._made = self._made, None
            if made is not None:
                await made.aclose()

    def _cut(self, *, publishes: bool) -> None:
        now = asyncio.get_running_loop().time()
        for limit, is_publish in self._running.items():
            if publishes or not is_publish:
                with contextlib.suppress(RuntimeError):  # its time has just run out
                    limit.reschedule(now)

    async def _until_quiet(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    self._quiet.clear()
                    await self._quiet.wait()

    async def perform(
        self, call: Call[T], *, timeout: float | None = None, attempts: int | None = None
    ) -> T:
        """Perform a call, and repeat it if possible.

        Args:
            call: A call of `calls.py`.
            timeout: Seconds for all attempts; default `operation_timeout`.
            attempts: Maximum number of attempts; default `rest_attempts`.

        Raises:
            PubSubError: Any class of the tree.
        """
        seconds = self._options.operation_timeout if timeout is None else timeout
        run = _Run()

        def may_repeat(error: BaseException) -> bool:
            if not isinstance(error, _Failed):
                return False
            run.asked = False
            run.unknown = run.unknown or error.unknown
            return error.again

        retrying = AsyncRetrying(
            stop=stop_after_attempt(attempts or self._options.rest_attempts)
            | stop_before_delay(seconds),
            wait=self._wait,
            retry=retry_if_exception(may_repeat),
            sleep=self._clock.sleep,
            reraise=True,
        )
        if seconds <= 0:
            raise OperationTimeout(
                "The timeout was over before the request was sent.", topic=call.topic, id=call.id
            )
        if self._closed:
            raise ClosedError(topic=call.topic)
        limit = asyncio.timeout(seconds)
        self._running[limit] = call.carries_ids
        try:
            async with limit:
                return await retrying(self._attempt, call, run)
        except _Failed as failed:
            error = failed.error
            if run.unknown and not failed.unknown and call.carries_ids:
                # The last attempt had no effect, but an earlier one may have.
                raise _lost(call) from error
            raise error from error.__cause__
        except AuthError as error:
            if run.unknown and call.carries_ids:  # there is no token for another attempt
                raise _lost(call) from error
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            unknown = call.carries_ids and (run.asked or run.unknown)
            if self._closed:
                raise (_lost(call) if unknown else ClosedError(topic=call.topic)) from None
            if not run.asked and not unknown:
                raise OperationTimeout(
                    f"get_token returned no token within {seconds:.4g} s; nothing was sent.",
                    remedy="Make the callback faster, or let it raise an error.",
                    topic=call.topic,
                    id=call.id,
                ) from None
            raise OperationTimeout(
                f"No answer within {seconds:.4g} s.",
                topic=call.topic,
                remedy=None if call.carries_ids else "Try again, or raise `timeout`.",
                outcome_unknown=unknown,
                id=call.id,
            ) from None
        finally:
            del self._running[limit]
            self._quiet.set()

    async def _attempt(self, call: Call[T], run: _Run) -> T:
        token = await self._tokens.current()
        run.asked = True
        status, headers, body = await self._exchange(call, token)
        if status == 401:
            run.asked = False
            other = await self._tokens.replace(token)
            if other is not None:
                run.asked = True
                token = other
                status, headers, body = await self._exchange(call, token)
        if status != 401:
            self._tokens.accepted()
        if 200 <= status < 300:
            if call.carries_ids and b'"error"' in body:
                body = body_without_token(body, token)
            try:
                return call.read(body)
            except ProtocolError as strange:
                raise self._foreign(call, status, headers, body, strange) from None
        problem = doubt_port(self._options)
        body = body_without_token(body, token)
        error = read_error(status, headers, body, call.topic, host=self._netloc, problem=problem)
        doubt_address(error, self._options, body)
        unknown = status >= 500 and status not in _NOT_DONE and status != 501
        again = status in _NOT_DONE or (unknown and self._is_repeatable(call))
        raise _Failed(error, again=again, unknown=unknown)

    def _foreign(
        self,
        call: Call[T],
        status: int,
        headers: httpx.Headers,
        body: bytes,
        strange: ProtocolError,
    ) -> ProtocolError:
        """The error of a successful answer that does not come from a PubSub server."""
        answered = describe_answer(status, headers, body)
        unknown = " Whether the message was published is unknown." if call.carries_ids else ""
        error = ProtocolError(
            f"{self._netloc} answered {call.method} {call.path} with {answered}. "
            f"{strange.message}{unknown}",
            remedy="Check that the URL is that of a PubSub server, and that no login page or proxy "
            "answers instead.",
            topic=call.topic,
        )
        return doubt_address(error, self._options, body)

    async def _exchange(self, call: Call[T], token: str) -> tuple[int, httpx.Headers, bytes]:
        headers = {**authorization(token), **dict(call.headers)}
        try:
            async with self.client.stream(
                call.method,
                call.path,
                params=call.params or None,
                content=call.body,
                headers=headers,
            ) as response:
                return response.status_code, response.headers, await self._read(response)
        except LOST as error:
            sent = not isinstance(error, _NOT_SENT)
            again = not sent or self._is_repeatable(call)
            if sent and call.carries_ids:
                raise _Failed(_lost(call, error), again=again, unknown=True) from None
            proxy = host_of(http_proxy(self._options))
            reason = why_unreachable(error, self._host, proxy, port=self._port)
            failed = ConnectionFailed(
                reason,
                remedy=remedy_of(reason),
                topic=call.topic,
                cause=without_frames(error),
            )
            doubt_address(failed, self._options)
            raise _Failed(failed, again=again, unknown=False) from None

    async def _read(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async with aclosing(body_of(response)) as portions:
            async for portion in portions:
                body += portion
                if len(body) > self._options.max_frame:
                    raise ProtocolError(
                        f"The server's answer has more than {self._options.max_frame:,} bytes.",
                        remedy="Request smaller pages, or raise `max_frame`.",
                    )
        return bytes(body)

    def _is_repeatable(self, call: Call[T]) -> bool:
        if not call.carries_ids:
            return call.repeatable
        known = self.features is None or "idempotency" in self.features
        return call.repeatable and known

    def _wait(self, state: RetryCallState) -> float:
        retry = self._options.retry
        base, cap = seconds_of(retry.base), seconds_of(retry.cap)
        delay = self._random() * min(cap, base * 2.0 ** (state.attempt_number - 1))
        failed = state.outcome.exception() if state.outcome is not None else None
        if isinstance(failed, _Failed) and failed.error.retry_after is not None:
            delay = max(delay, failed.error.retry_after)
        return delay


def _lost(call: Call[T], cause: BaseException | None = None) -> OperationTimeout:
    return OperationTimeout(
        code="outcome_unknown", topic=call.topic, id=call.id, outcome_unknown=True, cause=cause
    )
