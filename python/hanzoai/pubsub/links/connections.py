"""Connections of the clients of byte protocols: addresses, opening, waiting between attempts."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hanzoai.pubsub.errors import (
    ConnectionFailed,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    OperationTimeout,
)
from hanzoai.pubsub.network.dialing import open_stream, open_unix_stream
from hanzoai.pubsub.network.keepalive import keep_alive
from hanzoai.pubsub.randomness import RANDOM

if TYPE_CHECKING:
    import ssl

RECONNECT_MIN: Final = 0.1
RECONNECT_MAX: Final = 10.0
CHECK_SERVER: Final = "Check that the server runs and reads, or raise the timeout."
CHECK_URL: Final = "Check the URL: another program or protocol uses this address."
_CHUNK: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server.

    Attributes:
        host: Name or IP address; empty for a Unix socket.
        port: TCP port.
        path: Path of a Unix socket.
        tls: Whether the connection is encrypted.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def parse_target(url: str, scheme: str, port: int) -> Target:
    """Read ``SCHEME://HOST:PORT``, ``SCHEME+tls://HOST:PORT`` or ``SCHEME+unix:PATH``.

    Raises:
        InvalidOption: It is none of these.
    """
    check_url(url)
    found, _, rest = url.partition(":")
    if found == f"{scheme}+unix" and rest.removeprefix("//"):
        return Target(path=rest.removeprefix("//"))
    try:
        parts = urlsplit(url)
        host, given = parts.hostname, parts.port
    except ValueError:
        host = given = None
    if not host or not is_host(host) or found not in (scheme, f"{scheme}+tls"):
        raise InvalidOption(
            f"{url!r} is not a URL of this protocol.",
            field="url",
            remedy=f"Write {scheme}://HOST:PORT, {scheme}+tls://HOST:PORT or {scheme}+unix:PATH.",
        )
    if given == 0:
        raise InvalidOption(
            f"{url!r} has port 0, at which no server listens.",
            field="url",
            remedy="Use the address in the ready line of the server.",
        )
    return Target(host, port if given is None else given, tls=found.endswith("+tls"))


def check_url(url: object) -> None:
    """Check the type of a URL.

    Raises:
        InvalidOption: It is not a string.
    """
    if not isinstance(url, str):
        kind = "None" if url is None else type(url).__name__
        raise InvalidOption(
            f"url is {kind}, not a string.", field="url", remedy="Pass the URL as a string."
        )


def check_context(context: object) -> None:
    """Check the type of a TLS context.

    Raises:
        InvalidOption: It is neither an `ssl.SSLContext` nor None.
    """
    if context is None:
        return
    import ssl

    if not isinstance(context, ssl.SSLContext):
        raise InvalidOption(
            f"ssl is {type(context).__name__}, not an ssl.SSLContext.",
            field="ssl",
            remedy="Create it with ssl.create_default_context(cafile=...).",
        )


def is_host(text: str) -> bool:
    """Whether a name or IP address can be looked up: no label is empty or has over 63 bytes."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def to_bytes(text: str | bytes) -> bytes:
    """Encode text as UTF-8; reverses `to_text` for all bytes."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def topic_bytes(topic: object) -> bytes:
    """Encode a topic.

    Raises:
        InvalidTopic: It is neither text nor bytes, or the text cannot be encoded.
    """
    if not isinstance(topic, str | bytes):
        raise InvalidTopic(
            f"A topic is text or bytes, not {type(topic).__name__}.",
            field="topic",
            remedy='Pass strings or bytes, several topics as in `subscribe("a", "b")`.',
        )
    try:
        return to_bytes(topic)
    except UnicodeEncodeError as error:
        raise InvalidTopic(
            f"The topic cannot be encoded as UTF-8: {error.reason}.",
            field="topic",
            remedy="Pass bytes, or text without lone surrogates.",
        ) from None


def to_text(data: bytes) -> str:
    """Decode UTF-8; invalid bytes become lone surrogates (PEP 383)."""
    return data.decode("utf-8", "surrogateescape")


def payload(data: str | bytes | bytearray | memoryview) -> bytes:
    """Convert a payload to bytes.

    Raises:
        InvalidPayload: It is neither text nor bytes.
    """
    try:
        return to_bytes(data) if isinstance(data, str) else bytes(memoryview(data))
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            f"Data cannot be encoded as UTF-8: {error.reason}.",
            field="data",
            remedy="Pass bytes, or text without lone surrogates.",
        ) from None
    except TypeError:
        raise InvalidPayload(
            f"Data is {type(data).__name__}; this protocol carries bytes.",
            field="data",
            remedy=(
                "Pass bytes or a string; encode an object yourself, for example with json.dumps."
            ),
        ) from None


class Link:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        # A subscription sends nothing, so it would wait forever for a server that has vanished.
        keep_alive(writer.transport)

    @classmethod
    async def open(cls, target: Target, tls: ssl.SSLContext | None, timeout: float) -> Link:
        """Connect.

        Raises:
            ConnectionFailed: No program listens at the address, or TLS fails.
            OperationTimeout: It took longer than `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                if target.path:
                    return cls(*await open_unix_stream(target.path))
                context = (tls or _trust()) if target.tls else None
                return cls(*await open_stream(target.host, target.port, context))
        except TimeoutError:
            raise OperationTimeout(
                f"{target} did not answer within {timeout:g} s.", remedy=CHECK_SERVER
            ) from None
        except ConnectionRefusedError as error:
            raise ConnectionFailed(
                f"{target} refused the connection: no program listens there."
            ) from error
        except OSError as error:
            raise ConnectionFailed(f"{target} cannot be reached: {error}.") from error

    def begin(self, data: bytes) -> None:
        """Write the first bytes of the connection, which the system has room for."""
        self._writer.write(data)

    async def write(self, data: bytes) -> None:
        """Write everything, and wait if the peer does not read.

        Raises:
            ConnectionFailed: The connection has ended.
        """
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise ConnectionFailed("The connection ended.") from error

    def end(self) -> None:
        """Tell the peer that all bytes were sent, if the transport can; `read` still reads."""
        with contextlib.suppress(OSError):
            if self._writer.can_write_eof() and not self._writer.is_closing():
                self._writer.write_eof()

    async def read(self) -> bytes:
        """Return received bytes, or empty bytes at the end of the connection."""
        try:
            return await self._reader.read(_CHUNK)
        except OSError:
            return b""

    @property
    def ended(self) -> bool:
        """Whether either side has closed the connection."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def close(self) -> None:
        """Send the written bytes within a second, then close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()


class Backoff:
    """Waits between attempts: doubled each time, random within the upper half."""

    def __init__(self, first: float = RECONNECT_MIN, longest: float = RECONNECT_MAX) -> None:
        self._first = self._wait = first
        self._longest = longest

    def reset(self) -> None:
        """Reset to the shortest wait."""
        self._wait = self._first

    async def sleep(self, ended: asyncio.Event) -> None:
        """Wait, but not beyond the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.next()):
                await ended.wait()

    def next(self) -> float:
        """The next wait, in seconds."""
        wait, self._wait = self._wait, min(2 * self._wait, self._longest)
        return wait * RANDOM.uniform(0.5, 1)


def _trust() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()
