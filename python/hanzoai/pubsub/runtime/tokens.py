"""Gets tokens from the program, without delaying received frames."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import ClosedError, PubSubError
from hanzoai.pubsub.runtime.failures import unavailable
from hanzoai.pubsub.runtime.handlers import call
from hanzoai.pubsub.runtime.threads import call_in_thread
from hanzoai.pubsub.settings.checks import invalid
from hanzoai.pubsub.settings.options import check_token
from hanzoai.pubsub.values import Token, TokenContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.values import TokenReason


class TokenSource:
    """Tokens for socket and HTTP: one callback at a time, whose result both share (AUTH-1)."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self._callback = options.get_token
        self._clock = clock
        self._current = None if options.token is None else Token(options.token)
        self._task: asyncio.Task[Token] | None = None
        self._given_up: set[asyncio.Task[Token]] = set()
        self._waiting = 0
        self._closed = False
        self._rejections = 0
        self._fetched_at = 0.0
        self._life: float | None = None

    async def fetch(self, reason: TokenReason, attempt: int) -> Token:
        """Get a token from the program; concurrent calls share it, or the exception."""
        assert self._callback is not None  # a fixed token never expires, and is never replaced
        task = self._task
        if task is None or task.done():
            context = TokenContext(reason, attempt)
            task = self._task = asyncio.create_task(
                fetch_token(self._callback, context), name="hanzoai.pubsub get_token"
            )
        self._waiting += 1
        try:
            token = await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._closed and task.cancelled():  # by `close`, and not the caller
                raise ClosedError from None
            raise
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not task.done():
                self._give_up(task)
        if token.expires_at is None and self._life is not None:
            token = Token(token.value, self._clock.wall_ms() / 1000 + self._life)
        self._current = token
        self._fetched_at = self._clock.now()
        return token

    def learn(self, milliseconds_left: int) -> None:
        """Record the remaining lifetime of the token, as stated by the server.

        Tokens of one issuer usually have the same lifetime. So a later token without a known expiry
        is not kept for longer, and one that expired while the client was offline is renewed before
        it is used (AUTH-7). A wrong guess costs one call of the callback.
        """
        self._life = milliseconds_left / 1000 + self._clock.now() - self._fetched_at

    async def close(self) -> None:
        """Cancel a running callback, and wait for its end, for at most a second.

        A callback that closes its client calls this, and does not wait for itself.
        """
        self._closed = True
        if self._task is not None and not self._task.done():
            self._give_up(self._task)
        if others := self._given_up - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=1.0)

    def _give_up(self, task: asyncio.Task[Token]) -> None:
        self._task = None
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)
        task.cancel()

    async def current(self) -> str:
        """A token for an HTTP request: the last one, unless it has expired."""
        token = self._current
        if token is None:
            token = await self._ask("connect")
        elif token.expires_ms is not None and token.expires_ms <= self._clock.wall_ms():
            token = await self._ask("expiring")
        return token.value

    async def replace(self, rejected: str) -> str | None:
        """Another token instead of the rejected one; None if there is no other."""
        if self._callback is None:
            return None
        if self._current is None or self._current.value == rejected:
            await self._ask("rejected", self._rejections)
            self._rejections += 1
        assert self._current is not None
        return None if self._current.value == rejected else self._current.value

    def accepted(self) -> None:
        """A server did not reject the token of an HTTP request."""
        self._rejections = 0

    async def _ask(self, reason: TokenReason, attempt: int = 0) -> Token:
        try:
            return await self.fetch(reason, attempt)
        except PubSubError:
            raise
        except Exception as error:
            raise unavailable(error) from error


async def fetch_token(callback: Callable[..., object], context: TokenContext) -> Token:
    """Call ``get_token`` and check what it returns.

    A coroutine function runs in the event loop. A plain function runs in a separate daemon thread,
    because it may block, and must then delay neither the loop nor the end of the process.
    """
    if _is_coroutine_function(callback):
        result = await call(callback, context)
    else:
        result = await call(_call_in_thread, callback, context)
    if isinstance(result, Token):
        check_token(result.value)
        return result
    if isinstance(result, str):
        return Token(check_token(result))
    raise invalid(
        "get_token",
        f"returned {type(result).__name__}",
        "Return the token as a string, or Token(value, expires_at).",
    )


async def _call_in_thread(callback: Callable[..., object], context: TokenContext) -> object:
    result = await call_in_thread(partial(callback, context), "get_token")
    return await result if inspect.isawaitable(result) else result


def _is_coroutine_function(callback: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    )
