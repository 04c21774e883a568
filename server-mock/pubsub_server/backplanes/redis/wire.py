"""One RESP3 connection to Redis, for the calls that a node makes all day and for its channels.

redis-py dials: it knows every option of a URL, TLS and credentials. From then on the parser of
hiredis is fed directly, and answers go to callbacks. A call through the client of redis-py takes a
pool, a lock, a timer, two tasks and a parser in Python, which costs several times as much.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.asyncio import Redis

    Word = str | bytes | int
    Done = Callable[[Any], None]

CONFIRMATIONS: Final = frozenset((b"ssubscribe", b"sunsubscribe"))
"""Kinds of pushes that answer `tell`."""
ANSWER_WITHIN: Final = 5.0
"""Seconds. A Redis that owes an answer and sends nothing within this time counts as lost. While it
sends something, the answer may be behind it."""

_INCOMPLETE: Final = object()
_pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class _Socket(asyncio.Protocol):
    """The protocol of one transport; a `Wire` has one after another."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def data_received(self, data: bytes) -> None:
        self._wire.take(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.lost(self, exc)


class Wire:
    """One connection. Calls are answered in their order; what was not asked for is pushed.

    Args:
        client: Names the server and its credentials; it has a pool of its own and speaks RESP3.
        pushed: Gets what channels bring, as Redis sends it: kind, channel, payload.
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
        # What is called with each answer, and when the call counts as lost. A channel that is to be
        # confirmed has no callback.
        self._pending: deque[tuple[Done | None, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._ended: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._over = False

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""
        return self._transport is not None

    @property
    def connection(self) -> object | None:
        """What identifies the present connection; another one after each dial, None if closed."""
        return self._socket

    def listen(self, pushed: Callable[[Sequence[Any]], None]) -> None:
        """Give what channels bring to this callback from now on."""
        self._pushed = pushed

    async def open(self) -> None:
        """Dial, unless it is open.

        Raises:
            RedisError: The server is away, or refuses.
            OSError: As above; `TimeoutError` where no answer came within `ANSWER_WITHIN`.
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
            raise RedisConnectionError("the server closed the connection")

    def send(self, words: tuple[Word, ...], done: Done) -> None:
        """Send a command; the connection is open.

        Args:
            words: Of the command.
            done: Called with the answer, or with the `RedisError` that it is or that ended the
                connection. It must not raise.

        Raises:
            RedisError: The connection is lost, and nothing was sent.
        """
        self._write(words)
        self._expect(done)

    def tell(self, words: tuple[Word, ...]) -> None:
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
            # uvloop raises it for a write to a transport that is closed already.
            self.close(RedisConnectionError(str(error)))
            raise RedisConnectionError(str(error)) from error

    def _expect(self, done: Done | None) -> None:
        self._pending.append((done, self._loop.time() + ANSWER_WITHIN))
        if self._timer is None:
            self._timer = self._loop.call_later(ANSWER_WITHIN, self._look)

    async def execute_command(self, *words: Word) -> Any:
        """Dial if necessary, send a command and wait for its answer.

        A call that is cancelled while it is the oldest one hangs up.

        Raises:
            RedisError: The server refuses the command, or the connection is lost.
            OSError: As above.
        """
        await self.open()
        done: asyncio.Future[Any] = self._loop.create_future()

        def answered(answer: Any) -> None:
            if not done.done():
                done.set_result(answer)

        self.send(words, answered)
        try:
            answer = await done
        except BaseException:
            # A caller that gives up finds a connection that is stuck, unless others wait before it.
            if self._pending and self._pending[0][0] is answered:
                self.close()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ended(self) -> None:
        """Wait until the connection is lost.

        Raises:
            Exception: Why.
        """
        if self._transport is None:
            raise self._error or RedisConnectionError("the connection is lost")
        self._ended = self._loop.create_future()
        await self._ended

    def close(self, error: Exception | None = None) -> None:
        """Hang up. The next `execute_command` dials."""
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
        # A failure of this node is none of theirs: they are tried again.
        lost = (
            error if isinstance(error, RedisConnectionError) else RedisConnectionError(str(error))
        )
        for done, _ in pending:
            if done is not None:
                done(lost)

    async def hang_up(self) -> None:
        """Close the connection and its client; dial no more."""
        self._over = True
        self.close()
        with contextlib.suppress(Exception):
            await self._client.aclose()

    # ------------------------------------------------------------ what its socket brings

    def take(self, socket: _Socket, data: bytes) -> None:
        """Hand on every complete answer."""
        reader, incomplete, push = self._reader, _INCOMPLETE, hiredis.PushNotification
        pushed, pending = self._pushed, self._pending
        try:
            if socket is self._socket:
                self._heard = self._loop.time()
                reader.feed(data)
            # What is handed on may close the connection.
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
                # Only a refusal answers what was not called.
                self.close(answer if isinstance(answer, Exception) else InvalidResponse("no call"))
                return
        except Exception as error:
            self.close(error)

    def lost(self, socket: _Socket, error: Exception | None) -> None:
        """The server or the network ended it."""
        if socket is self._socket:
            said = "the server closed the connection" if error is None else str(error)
            self.close(RedisConnectionError(said))

    # ------------------------------------------------------------ inside

    def _take_over(self, connection: Any) -> None:
        # No public way leads from redis-py to its transport. A stream without a reference closes
        # it, and so does the connection.
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
            self.take(socket, early)
        if reader.at_eof() or writer.transport.is_closing():
            self.close()

    def _see_over(self) -> None:
        if self._over:
            raise RedisConnectionError("the connection is not used any more")

    def _look(self) -> None:
        """Whether the oldest call waits for too long."""
        self._timer = None
        if not self._pending:
            return
        due = max(self._pending[0][1], self._heard + ANSWER_WITHIN)
        if due <= self._loop.time():
            self.close(RedisConnectionError(f"no answer within {ANSWER_WITHIN:g} s"))
        else:
            self._timer = self._loop.call_at(due, self._look)
