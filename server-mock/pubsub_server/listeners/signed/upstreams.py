"""Sources of relayed topics: a broker node, or the WebSocket of a Bee node."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from hanzoai.pubsub import soc
from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.listeners.byte_session import FINISH_SECONDS
from pubsub_server.listeners.signed.modes import GSOC
from pubsub_server.listeners.signed.stream_codec import (
    Opening,
    Received,
    SubscriberDecoder,
    encode_opening,
    split,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.asyncio.client import ClientConnection

    from pubsub_server.listeners.signed.addresses import Asked, BrokerAddress

DIAL_SECONDS: Final = 15.0
"""Seconds for a broker to answer."""
SILENT_SECONDS: Final = 75.0
"""Seconds without data after which a broker counts as dead; it sends a ping every 30 seconds."""
READ_BYTES: Final = 65_536
WRITE_SECONDS: Final = 15.0


class UpstreamError(Exception):
    """The broker cannot be reached, or violates the protocol."""


class Upstream(Protocol):
    """One connection to a broker, for one topic."""

    def messages(self) -> AsyncIterator[Received]:
        """The messages of the broker, until it ends.

        Raises:
            UpstreamError: The connection fails, or the broker violates the protocol.
        """
        ...

    async def send(self, frame: bytes) -> None:
        """Publish a frame.

        Raises:
            UpstreamError: The connection has failed.
        """
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class StreamUpstream:
    """A stream to a node. Create it with `open_stream`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = SubscriberDecoder()
        self._waiting: list[Received] = []
        self._published = False

    async def answered(self) -> None:
        """Wait for the broker's headers."""
        while not self._decoder.answered:
            self._waiting += await self._read()
        self._published = False

    async def messages(self) -> AsyncIterator[Received]:
        """See `Upstream`."""
        while True:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                yield each
            self._waiting = await self._read()

    async def _read(self) -> list[Received]:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                data = await self._reader.read(READ_BYTES)
            if not data:
                raise UpstreamError("the broker has closed the stream")
            self._decoder.feed(data)
            return self._decoder.decode()
        except TimeoutError:
            raise UpstreamError(f"the broker sent nothing for {SILENT_SECONDS:.0f} s") from None
        except OSError as error:
            raise UpstreamError(str(error)) from None
        except FrameError as error:
            raise UpstreamError(f"the broker breaks the protocol: {error}") from None

    async def send(self, frame: bytes) -> None:
        """See `Upstream`."""
        self._published = True
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                self._writer.write(frame)
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise UpstreamError(f"the broker accepts no data: {error}") from None

    async def close(self) -> None:
        """See `Upstream`. A broker that is slow has time to read what was published."""
        writer = self._writer
        try:
            if self._published and writer.can_write_eof():
                async with asyncio.timeout(FINISH_SECONDS):
                    writer.write_eof()
                    # If it sent to a closed connection, it would lose what it has not read yet.
                    while await self._reader.read(READ_BYTES):
                        pass
            writer.close()
            async with asyncio.timeout(1.0):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            writer.transport.abort()


async def open_stream(asked: Asked, peer: BrokerAddress) -> Upstream:
    """Open a stream to a broker node.

    Raises:
        UpstreamError: It cannot be reached, or refuses the request.
    """
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            reader, writer = await asyncio.open_connection(
                peer.host, peer.port, ssl=ssl.create_default_context() if peer.tls else None
            )
            upstream = StreamUpstream(reader, writer)
            try:
                writes = asked.parameters is not None
                opening = Opening(asked.topic, GSOC.number, writes, asked.parameters)
                await upstream.send(encode_opening(opening))
                await upstream.answered()
            except BaseException:
                writer.transport.abort()
                raise
            return upstream
    except TimeoutError:
        raise UpstreamError(f"{peer} did not answer within {DIAL_SECONDS:.0f} s") from None
    except OSError as error:
        raise UpstreamError(f"{peer}: {error.strerror or error}") from None


class SocketUpstream:
    """A WebSocket of a Bee node. Create it with `open_socket`."""

    def __init__(self, socket: ClientConnection, asked: Asked) -> None:
        self._socket = socket
        self._parameters = asked.parameters

    async def messages(self) -> AsyncIterator[Received]:
        """See `Upstream`. A Bee node does not send id and owner: only publishers know them."""
        try:
            async for message in self._socket:
                data = message.encode() if isinstance(message, str) else bytes(message)
                for frame in split(data):
                    yield Received(frame, self._parameters)
        except FrameError as error:
            raise UpstreamError(f"the Bee node breaks the protocol: {error}") from None
        except (WebSocketException, OSError) as error:
            raise UpstreamError(str(error)) from None
        raise UpstreamError("the Bee node has closed the WebSocket")

    async def send(self, frame: bytes) -> None:
        """See `Upstream`."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._socket.send(frame)
        except (WebSocketException, OSError, TimeoutError) as error:
            raise UpstreamError(f"the Bee node accepts no data: {error}") from None

    async def close(self) -> None:
        """See `Upstream`."""
        await self._socket.close()


async def open_socket(asked: Asked, url: str) -> Upstream:
    """Open a topic on a Bee node.

    Args:
        asked: The request.
        url: URL of its `/pubsub/`, with the query that it needs, such as ``peer``.

    Raises:
        UpstreamError: It cannot be reached, or refuses the request.
    """
    parts = urlsplit(url)
    query, headers = parts.query, {}
    if asked.parameters is not None:
        owner, id = asked.parameters.owner.hex(), asked.parameters.id.hex()
        given = {"gsoc-eth-address": owner, "gsoc-topic": id}
        both = {**given, **{f"swarm-pubsub-{name}": value for name, value in given.items()}}
        query = "&".join(filter(None, (query, urlencode(both))))
        headers = {f"Swarm-Pubsub-{name.title()}": value for name, value in given.items()}
    path = f"{parts.path.rstrip('/')}/{asked.topic.hex()}"
    target = urlunsplit((parts.scheme, parts.netloc, path, query, ""))
    try:
        socket = await connect(
            target,
            additional_headers=headers,
            open_timeout=DIAL_SECONDS,
            close_timeout=1.0,
            max_size=16 * soc.MAX_FRAME,
            compression=None,
        )
    except InvalidHandshake as error:
        raise UpstreamError(f"the Bee node rejects the connection: {error}") from None
    except (WebSocketException, OSError, TimeoutError) as error:
        raise UpstreamError(f"the Bee node cannot be reached: {error}") from None
    return SocketUpstream(socket, asked)
