"""One RESP3 connection to Redis, for frequent calls and for channels.

redis-py dials, because it supports every option of a URL, TLS and credentials. Then bytes go
directly to the parser of hiredis, and answers to callbacks. A call through the client of redis-py
takes a pool, a lock, a timer, two tasks and a parser in Python, which costs several times as much.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from pubsub_server.backplanes.redis.errors import CLOSED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.asyncio import Redis

    Word = str | bytes | int
    Done = Callable[[Any], None]

CONFIRMATIONS: Final = frozenset((b"ssubscribe", b"sunsubscribe"))
"""Kinds of pushes that confirm `change_channels`."""
ANSWER_WITHIN: Final = 5.0
"""Seconds. If an answer is due and Redis sends nothing within this time, the connection counts as
lost. While Redis sends data, the answer may follow.
"""

_INCOMPLETE: Final = object()
_pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


def unused() -> RedisConnectionError:
    """The error of a call after the end of its connection."""
    return RedisConnectionError("the connection is not used any more")


class _Socket(asyncio.Protocol):
    """The protocol of one transport; a `Wire` uses a new one for each connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def data_received(self, data: bytes) -> None:
        self._wire.receive(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.lost(self, exc)


class Wire:
    """One connection. Calls are answered in order; other data arrives as pushes.

    Args:
        client: Has the server and its credentials, and uses RESP3. Its pool only creates
            connections.
        pushed: Receives pushes of channels as Redis sends them: kind, channel, payload.
    """

    def __init__(
        self, client: Redis, pushed: Callable[[Sequence[Any]], None] = lambda push: None
    ) -> None:
        self._client: Any = client
        self._pushed = pushed
        self._loop = asyncio.get_running_loop()
        self._dialing = asyncio.Lock()
        self._streams: tuple[Any, ...] = ()
        self._socket: _Socket | None = None
        self._transport: asyncio.Transport | None = None
        self._reader: Any = None
        # The callback for each answer, and when the call counts as lost. A confirmation of a
        # channel has no callback.
        self._pending: deque[tuple[Done | None, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._received_at = 0.0
        self._ended: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._over = False

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""
        return self._transport is not None

    @property
    def connection(self) -> object | None:
        """Identifies the current connection; differs after each dial, None if closed."""
        return self._socket

    def listen(self, pushed: Callable[[Sequence[Any]], None]) -> None:
        """Pass pushes of channels to this callback from now on."""
        self._pushed = pushed

    async def open(self) -> None:
        """Dial, unless it is open.

        Raises:
            RedisError: The server is unavailable, or refuses.
            OSError: As above; `TimeoutError` if no answer arrives within `ANSWER_WITHIN`.
        """
        async with self._dialing:
            if self._transport is not None:
                return
            connection = self._client.connection_pool.make_connection()
            try:
                self._see_over()
                async with asyncio.timeout(ANSWER_WITHIN):
                    await connection.connect()
                self._see_over()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            self._take_over(connection)
        if self._transport is None:
            raise RedisConnectionError(CLOSED)

    def send(self, words: tuple[Word, ...], done: Done) -> None:
        """Send a command on the open connection.

        Args:
            words: The command and its arguments.
            done: Called with the answer, or with the `RedisError` of the answer or of the
                connection. It must not raise.

        Raises:
            RedisError: The connection is lost, and nothing was sent.
        """
        self._write(words)
        self._expect(done)

    def change_channels(self, words: tuple[Word, ...]) -> None:
        """Subscribe to channels or unsubscribe; a refusal ends the connection.

        Args:
            words: Command and channels. A push confirms each channel.

        Raises:
            RedisError: The connection is lost.
        """
        self._write(words)
        for _ in words[1:]:
            self._expect(None)

    def _write(self, words: tuple[Word, ...]) -> None:
        if self._transport is None:
            raise RedisConnectionError("the connection is lost")
        try:
            self._transport.write(_pack(words))
        except RuntimeError as error:
            # uvloop raises it for a write to a closed transport.
            self.close(RedisConnectionError(str(error)))
            raise RedisConnectionError(str(error)) from error

    def _expect(self, done: Done | None) -> None:
        self._pending.append((done, self._loop.time() + ANSWER_WITHIN))
        if self._timer is None:
            self._timer = self._loop.call_later(ANSWER_WITHIN, self._check_oldest)

    async def execute_command(self, *words: Word) -> Any:
        """Dial if necessary, send a command and wait for its answer.

        If the oldest call is cancelled, the connection closes.

        Raises:
            RedisError: The server refuses the command, or the connection is lost.
            OSError: As above.
        """
        return (await self.execute_commands([words]))[0]

    async def execute_commands(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Like `execute_command` for several commands, which are sent together.

        Raises:
            RedisError: As above; the first refusal.
            OSError: As above.
        """
        await self.open()
        done: asyncio.Future[None] = self._loop.create_future()
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            answers.append(answer)
            if len(answers) == len(commands) and not done.done():
                done.set_result(None)

        for words in commands:
            self.send(words, answered)
        try:
            await done
        except BaseException:
            # A cancelled oldest call means that the connection is stuck.
            if self._pending and self._pending[0][0] is answered:
                self.close()
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def ended(self) -> None:
        """Wait until the connection is lost.

        Raises:
            Exception: The reason.
        """
        if self._transport is None:
            raise self._error or RedisConnectionError("the connection is lost")
        self._ended = self._loop.create_future()
        await self._ended

    def close(self, error: Exception | None = None) -> None:
        """Close the connection. The next `execute_command` dials."""
        transport, self._transport, self._socket = self._transport, None, None
        if transport is not None:
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, deque()
        self._error = error or RedisConnectionError("the connection is lost")
        ended, self._ended = self._ended, None
        if ended is not None and not ended.done():
            ended.set_exception(self._error)
        # The calls did not cause this failure, so they are repeated.
        why = self._error
        lost = why if isinstance(why, RedisConnectionError) else RedisConnectionError(str(why))
        for done, _ in pending:
            if done is not None:
                done(lost)

    def hang_up(self) -> None:
        """Close the connection permanently; one that is being dialed closes when it is open."""
        self._over = True
        self.close()

    # ------------------------------------------------------------ what its socket brings

    def receive(self, socket: _Socket, data: bytes) -> None:
        """Pass on every complete answer."""
        reader, incomplete, push = self._reader, _INCOMPLETE, hiredis.PushNotification
        pushed, pending = self._pushed, self._pending
        try:
            if socket is self._socket:
                self._received_at = self._loop.time()
                reader.feed(data)
            # A callback may close the connection.
            while socket is self._socket and (answer := reader.gets()) is not incomplete:
                if type(answer) is push:
                    if answer[0] in CONFIRMATIONS and pending and pending[0][0] is None:
                        pending.popleft()
                    pushed(answer)
                    continue
                done = pending.popleft()[0] if pending else None
                if done is not None:
                    done(answer)
                    continue
                # Without a pending call, only an error of a subscription can arrive.
                self.close(answer if isinstance(answer, Exception) else InvalidResponse("no call"))
                return
        except Exception as error:
            self.close(error)

    def lost(self, socket: _Socket, error: Exception | None) -> None:
        """The server or the network closed the connection."""
        if socket is self._socket:
            ended = RedisConnectionError(CLOSED)
            ended.__cause__ = error
            self.close(ended)

    # ------------------------------------------------------------ inside

    def _take_over(self, connection: Any) -> None:
        # redis-py has no public access to its transport. Keep the stream and the connection
        # referenced: without a reference they close the transport.
        writer, reader, parser = connection._writer, connection._reader, connection._parser  # noqa: SLF001
        connection._writer = connection._reader = None  # noqa: SLF001
        self._streams = (reader, writer)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=parser.parse_error,
            notEnoughData=_INCOMPLETE,
        )
        self._transport = writer.transport
        self._socket = socket = _Socket(self)
        writer.transport.set_protocol(socket)
        early = bytes(reader._buffer)  # noqa: SLF001
        if early:
            self.receive(socket, early)
        if reader.at_eof() or writer.transport.is_closing():
            self.close()

    def _see_over(self) -> None:
        if self._over:
            raise unused()

    def _check_oldest(self) -> None:
        """Whether the oldest call has waited too long."""
        self._timer = None
        if not self._pending:
            return
        due = max(self._pending[0][1], self._received_at + ANSWER_WITHIN)
        if due <= self._loop.time():
            self.close(RedisConnectionError(f"no answer within {ANSWER_WITHIN:g} s"))
        else:
            self._timer = self._loop.call_at(due, self._check_oldest)
