"""Carriers of signed messages: a HIP-56 topic, or a separate WebSocket for each signed topic."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.protocol import State

from hanzoai.pubsub import soc
from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidOption,
    InvalidPayload,
    OperationTimeout,
)
from hanzoai.pubsub.settings.checks import check_text
from hanzoai.pubsub.signed.messages import Forged, SignedEvent, SignedMessage
from hanzoai.pubsub.values import Gap, Message, Published

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.asyncio.client import ClientConnection

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.runtime.subscription import Subscription

OPEN_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0
WAITING_MAX: Final = 1_000
"""Maximum messages that wait for the program; at this limit, the socket is not read."""
_BROKER: Final = "Check `peer`, and that its broker runs and the server can reach it."
_REFUSED: Final = "Compare owner, id and topic; see the server's rules and `signed_peers`."


class Carrier(Protocol):
    """Publishes frames, and yields received events."""

    async def open(self) -> None:
        """Start to receive; do nothing if it is open.

        Raises:
            PubSubError: The carrier cannot connect or subscribe.
        """
        ...

    async def publish(self, frame: bytes, owner: bytes) -> Published | None:
        """Publish one frame."""
        ...

    def events(self) -> AsyncIterator[SignedEvent]:
        """Verified messages, forged ones and gaps, in order."""
        ...

    async def close(self) -> None:
        """Stop receiving."""
        ...


class TopicCarrier:
    """Carries the messages inside the HIP-56 topic ``signed.<64 hex>`` of a client.

    Args:
        client: The client whose connection, token and resume are used.
        address: Address of the topic, 32 bytes.
        id: Id of the topic; None reads it from each message.
    """

    def __init__(self, client: PubSubClient, address: bytes, id: bytes | None) -> None:
        self._client = client
        self._address = address
        self._id = id
        self._name = f"signed.{address.hex()}"
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """See `Carrier`."""
        if self._subscription is not None:
            return
        subscription = self._client.subscribe(self._name)
        try:
            self._subscription = await subscription
        except BaseException:
            await subscription.unsubscribe()
            raise

    async def publish(self, frame: bytes, owner: bytes) -> Published | None:
        """See `Carrier`."""
        assert self._id is not None
        data = soc.to_data(frame, self._id, owner)
        return await self._client.publish(self._name, {"type": "message", "data": data})

    async def events(self) -> AsyncIterator[SignedEvent]:
        """See `Carrier`."""
        if self._subscription is None:
            raise closed()
        async for event in self._subscription.events():
            if isinstance(event, Gap):
                yield event
            elif isinstance(event, Message):
                yield self._verify(event)

    async def close(self) -> None:
        """See `Carrier`."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.unsubscribe()

    def _verify(self, message: Message) -> SignedMessage | Forged:
        try:
            claimed = soc.from_data(message.data)
            found = soc.verify(claimed.frame, self._id or claimed.id, self._address)
            if found.owner != claimed.owner or (self._id or claimed.id) != claimed.id:
                return Forged(_other(), message.data, message)
        except InvalidPayload as error:
            return Forged(error, message.data, message)
        return SignedMessage(found.payload, found.owner, claimed.frame, message)


class SocketCarrier:
    """Carries the messages on a WebSocket of a server with ``--signed``, or of a Bee node.

    Args:
        url: URL of ``/pubsub/``; ``ws://HOST:PORT`` is enough.
        address: Address of the topic, 32 bytes.
        id: Id of the topic.
        owner: Address of the publisher; None only reads.
        peer: The broker, such as ``/ip4/10.0.0.1/tcp/1634``.

    Raises:
        InvalidOption: The URL is not a WebSocket URL.
    """

    def __init__(
        self, url: str, address: bytes, id: bytes, owner: bytes | None, peer: str | None
    ) -> None:
        self._address = address
        self._id = id
        check_text("url", url, "the URL of a WebSocket")
        parts = urlsplit(url)
        if parts.scheme not in {"ws", "wss"} or not parts.hostname:
            raise InvalidOption(
                "`url` is not the URL of a WebSocket.",
                field="url",
                remedy="Write ws://HOST:PORT or wss://HOST:PORT, with or without /pubsub/.",
            )
        path = parts.path.rstrip("/")
        if not path.endswith("/pubsub"):
            path = path.removesuffix("/ws") + "/pubsub"
        given = {"peer": peer}
        if owner is not None:
            given |= {"gsoc-eth-address": owner.hex(), "gsoc-topic": id.hex()}
        named = {name: value for name, value in given.items() if value is not None}
        # Each revision of Bee reads one of these spellings and ignores the others.
        both = {**named, **{f"swarm-pubsub-{name}": value for name, value in named.items()}}
        query = "&".join(filter(None, (parts.query, urlencode(both, safe="/"))))
        target = (parts.scheme, parts.netloc, f"{path}/{address.hex()}", query, "")
        self._url = urlunsplit(target)
        self._headers = {f"Swarm-Pubsub-{name.title()}": value for name, value in named.items()}
        self._socket: ClientConnection | None = None
        self._received: asyncio.Queue[bytes | ConnectionClosed | None] = asyncio.Queue(WAITING_MAX)
        self._reading: asyncio.Task[None] | None = None
        # A publisher that never reads must not be blocked by its own messages.
        self._wanted = owner is None

    async def open(self) -> None:
        """See `Carrier`."""
        if self._socket is not None and self._socket.state is State.OPEN:
            return
        try:
            self._socket = await connect(
                self._url,
                additional_headers=self._headers,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                max_size=16 * soc.MAX_FRAME,
                compression=None,
            )
        except InvalidStatus as error:
            detail = (error.response.body or b"").decode(errors="replace").strip()
            status = error.response.status_code
            raise ConnectionFailed(
                f"The server rejects the signed topic with HTTP status {status}: {detail}",
                remedy=_BROKER if status == HTTPStatus.BAD_GATEWAY else _REFUSED,
                cause=error,
            ) from None
        except TimeoutError as error:
            raise OperationTimeout("The signed topic did not open in time.", cause=error) from None
        except (OSError, WebSocketException) as error:
            raise ConnectionFailed(
                f"The signed topic cannot be opened: {error}", cause=error
            ) from None
        if self._reading is not None:
            # It may wait for the program to read messages of the earlier connection.
            self._reading.cancel()
        self._received = asyncio.Queue(WAITING_MAX)
        self._reading = asyncio.create_task(self._read(self._socket))

    async def publish(self, frame: bytes, owner: bytes) -> Published | None:
        """See `Carrier`. The protocol has no acknowledgement; the message comes back as an echo."""
        if self._socket is None:
            raise closed()
        try:
            await self._socket.send(frame)
        except ConnectionClosed as error:
            raise _ended(error) from None
        return None

    async def events(self) -> AsyncIterator[SignedEvent]:
        """See `Carrier`."""
        if self._socket is None:
            raise closed()
        self._wanted = True
        while True:
            received = await self._received.get()
            if isinstance(received, bytes):
                yield self._verify(received)
                continue
            # The next call raises the error.
            self._received.put_nowait(received)
            if received is None:
                return
            raise _ended(received)

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                received = await socket.recv()
                frame = received.encode() if isinstance(received, str) else received
                if self._wanted:
                    await self._received.put(frame)
        except ConnectionClosed as error:
            await self._received.put(error)

    async def close(self) -> None:
        """See `Carrier`."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        await socket.close()
        while not self._received.empty():
            self._received.get_nowait()
        self._received.put_nowait(None)

    def _verify(self, frame: bytes) -> SignedMessage | Forged:
        try:
            found = soc.verify(frame, self._id, self._address)
        except InvalidPayload as error:
            return Forged(error, frame)
        return SignedMessage(found.payload, found.owner, frame)


def _other() -> InvalidPayload:
    return InvalidPayload(
        "The message names another owner or id than its signature proves.",
        field="owner",
        remedy="Build the data with `to_data`.",
    )


def closed() -> ClosedError:
    """The error of a call that needs an open topic."""
    return ClosedError(
        "The signed topic is not open.", remedy="Use it inside `async with`, or call `connect`."
    )


def _ended(error: ConnectionClosed) -> ConnectionFailed:
    close: Any = error.rcvd
    why = f"{close.code} {close.reason}".strip() if close else "without a close frame"
    return ConnectionFailed(
        f"The WebSocket of the signed topic has ended: {why}.",
        remedy=(
            "Open it again; messages that were sent meanwhile are lost, because the protocol "
            "has no history."
        ),
        cause=error,
    )
