"""Asks the program for a token, without ever holding up the task that reads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from typing import TYPE_CHECKING, Any

from .errors import InvalidOption
from .options import check_token
from .values import Token, TokenContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from .clock import Clock
    from .options import ClientOptions
    from .values import TokenReason


class TokenSource:
    """Where socket and HTTP get tokens: one callback at a time, both share its answer (AUTH-1).

    Args:
        options: ``token`` or ``get_token``.
        clock: Tells whether a token has ended.
    """

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self._fixed = None if options.token is None else Token(options.token)
        self._callback = options.get_token
        self._clock = clock
        self._current = self._fixed
        self._task: asyncio.Task[Token] | None = None
        self._waiting = 0
        self._rejections = 0

    @property
    def fixed(self) -> Token | None:
        """The token that never changes, where the program gave one."""
        return self._fixed

    async def fetch(self, reason: TokenReason, attempt: int) -> Token:
        """Ask the program for a token; whoever asks meanwhile gets the same answer.

        Raises:
            InvalidOption: The callback returned something else than a token.
            Exception: Whatever it raised.
        """
        if self._callback is None:
            assert self._fixed is not None  # read_options demands one of the two
            return self._fixed
        task = self._task
        if task is None or task.done():
            context = TokenContext(reason, attempt)
            task = self._task = asyncio.create_task(
                fetch_token(self._callback, context), name="hanzoai.pubsub get_token"
            )
        self._waiting += 1
        try:
            token = await asyncio.shield(task)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not task.done():
                task.cancel()
                self._task = None
        self._current = token
        return token

    async def close(self) -> None:
        """Give up a callback that is still under way, and wait for its end."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)

    async def current(self) -> str:
        """A token for a request over HTTP: the last one, unless it has ended."""
        token = self._current
        if token is None:
            token = await self.fetch("connect", 0)
        elif token.expires_at is not None and token.expires_at <= self._clock.wall_ms():
            token = await self.fetch("expiring", 0)
        self._rejections = 0
        return token.value

    async def replace(self, rejected: str) -> str | None:
        """Another token in place of one that the server refused; None where there is none."""
        if self._callback is None:
            return None
        if self._current is None or self._current.value == rejected:
            await self.fetch("rejected", self._rejections)
            self._rejections += 1
        assert self._current is not None
        return None if self._current.value == rejected else self._current.value


async def fetch_token(callback: Callable[..., object], context: TokenContext) -> Token:
    """Call ``get_token`` and check what it returns.

    A coroutine function runs in the event loop; a plain function in a daemon thread of its own,
    because it may block, and a blocked one must hold up neither the loop nor the end of the
    process.

    Raises:
        InvalidOption: It returned something else than a token.
        Exception: Whatever the callback raised; ``AuthRefused`` asks to stop for good.
    """
    if _is_coroutine_function(callback):
        result = callback(context)
    else:
        result = await _in_thread(callback, context)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Token):
        check_token(result.value)
        return result
    if isinstance(result, str):
        return Token(check_token(result))
    raise InvalidOption(
        f"`get_token` returned {type(result).__name__}.",
        remedy="Return the token as a string, or Token(value, expires_at).",
        field="get_token",
    )


def _is_coroutine_function(callback: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    )


async def _in_thread(callback: Callable[..., object], context: TokenContext) -> object:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(result: object, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        result: object = None
        error: BaseException | None = None
        try:
            result = callback(context)
        except BaseException as raised:
            error = (
                RuntimeError("get_token raised StopIteration")
                if isinstance(raised, StopIteration)
                else raised
            )
        with contextlib.suppress(RuntimeError):  # the loop has ended, nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="hanzoai.pubsub get_token", daemon=True).start()
    return await answer


__all__ = ["TokenSource", "fetch_token"]
