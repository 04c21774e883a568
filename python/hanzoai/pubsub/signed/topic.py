"""`SignedTopic`: publishes signed messages, and yields the received ones that it has verified."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from hanzoai.pubsub import soc
from hanzoai.pubsub.errors import InvalidOption, UsageError
from hanzoai.pubsub.links.unparsed import is_bytes
from hanzoai.pubsub.payload_bytes import bytes_of
from hanzoai.pubsub.runtime.handlers import describe_gap
from hanzoai.pubsub.settings.checks import kind
from hanzoai.pubsub.signed.carriers import Carrier, SocketCarrier, TopicCarrier, closed
from hanzoai.pubsub.signed.messages import Forged, SignedEvent, SignedMessage
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.values import Published

Signer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Signs a 32-byte digest like Ethereum's ``personal_sign``; returns r, s and v, 65 bytes."""

_LOG: Final = logging.getLogger("hanzoai.pubsub.signed")
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


class SignedTopic:
    """A topic whose messages are signed by its owner.

    Args:
        url: WebSocket of a server with ``--signed``, or of a Bee node, such as
            ``ws://127.0.0.1:8057``. The topic then has its own connection.
        client: Client whose HIP-56 topic ``signed.<64 hex>`` carries the messages, with its token,
            history and resume. Pass exactly one of ``url`` and ``client``.
        id: The topic's id: 32 bytes, 64 hex digits, or any other text, which is hashed. To read
            with ``client`` and ``topic``, you can leave it out.
        key: Private key, 32 bytes, to publish.
        signer: Function that signs instead of ``key``; requires ``owner``.
        owner: Address of the owner, 20 bytes; derived from ``key``.
        topic: Address of the topic, 32 bytes or 64 hex digits; derived from ``id`` and ``owner``.
        peer: With ``url``: the broker, such as ``/ip4/10.0.0.1/tcp/1634``; None is the server.

    Attributes:
        address: Address of the topic, 32 bytes.
        forged: Number of received messages that failed verification.

    Raises:
        InvalidOption: An argument is wrong, or two contradict each other; `field` names it.
        InvalidPayload: The key is not a secp256k1 key.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: PubSubClient | None = None,
        id: bytes | str | None = None,
        key: bytes | None = None,
        signer: Signer | None = None,
        owner: bytes | None = None,
        topic: bytes | str | None = None,
        peer: str | None = None,
    ) -> None:
        if (url is None) == (client is None):
            raise _wrong("url", "Pass exactly one of `url` and `client`.")
        writes = key is not None or signer is not None
        if client is not None:
            _check_client(client, "publish" if writes else "subscribe")
        if key is not None and signer is not None:
            raise _wrong("signer", "Pass `key` or `signer`, not both.")
        if signer is not None and owner is None:
            raise _wrong("owner", "A `signer` needs the `owner` whose key it has.")
        if peer is not None and url is None:
            raise _wrong("peer", "`peer` requires `url`.")
        if key is not None:
            derived = soc.owner_of(key)
            if owner is not None and owner != derived:
                raise _wrong("owner", "`owner` is not the address of `key`.")
            owner = derived
        known = None if id is None else _id(id)
        address = None if topic is None else _address(topic)
        if known is not None and owner is not None:
            derived = soc.topic_address(known, owner)
            if address is not None and address != derived:
                raise _wrong("topic", "`topic` does not belong to `id` and `owner`.")
            address = derived
        if address is None:
            raise _wrong("topic", "Pass `id` with `key` or `owner`, or `topic`.")
        if known is None and (writes or client is None):
            raise _wrong("id", "Pass `id`: it is signed with each message.")
        self.address = address
        self.forged = 0
        self._id = known
        self._owner = owner
        self._key = key
        self._signer = signer
        self._warned: set[type[SignedEvent]] = set()
        self._changing = asyncio.Lock()
        self._opening: asyncio.Future[None] | None = None
        self._closing = 0
        # Done when the most recently requested signature has been used or has failed.
        self._turn: asyncio.Future[None] | None = None
        self._writes = writes
        self._carrier: Carrier
        if client is not None:
            self._carrier = TopicCarrier(client, address, known)
        else:
            assert url is not None
            assert known is not None
            self._carrier = SocketCarrier(url, address, known, owner if writes else None, peer)

    @property
    def name(self) -> str:
        """The HIP-56 topic: ``signed.`` and the address in hex."""
        return f"signed.{self.address.hex()}"

    @property
    def owner(self) -> bytes | None:
        """Address of the owner; None if only the topic is known."""
        return self._owner

    async def connect(self) -> None:
        """Open the topic; do nothing if it is open.

        A reader receives from this call on, a publisher from its first iteration on.

        Raises:
            ClosedError: `close` was called meanwhile.
            PubSubError: The server cannot be reached, or rejects the connection.
        """
        if isinstance(self._carrier, SocketCarrier) or not self._writes:
            await self._open()

    async def _open(self) -> None:
        async with self._changing:
            if self._closing:
                raise closed()
            self._opening = asyncio.ensure_future(self._carrier.open())
            try:
                await self._opening
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise closed() from None  # by `close`

    async def publish(self, payload: Any) -> Published | None:
        """Sign and publish.

        Messages are sent in the order of the calls, even if ``signer`` answers in another order.

        Args:
            payload: Bytes, a string, or another JSON value; at most 4,096 bytes.

        Returns:
            The acknowledgement with ``client``; None with ``url``, whose protocol has none.

        Raises:
            UsageError: There is neither a key nor a signer.
            InvalidPayload: The payload is too long or is not plain JSON, or the signer's signature
                is not the owner's. `field` names the invalid value.
            PubSubError: Same errors as `PubSubClient.publish`.
        """
        id, owner = self._id, self._owner
        if (self._key is None and self._signer is None) or id is None or owner is None:
            raise UsageError(
                "This signed topic is read only.", remedy="Pass `key`, or `signer` with `owner`."
            )
        if isinstance(payload, bytes):
            data = payload
        else:
            check_data(payload, sys.maxsize, path="payload")
            data = bytes_of(payload)
        if self._key is not None:
            frame = soc.sign(self._key, id, data)
        else:
            assert self._signer is not None
            frame = await self._ask(self._signer, id, data)
        return await self._carrier.publish(frame, owner)

    async def events(self) -> AsyncIterator[SignedEvent]:
        """Verified messages, forged ones, and gaps, in order.

        Raises:
            ClosedError: The topic is not open.
            ConnectionFailed: The WebSocket has ended.
        """
        if isinstance(self._carrier, TopicCarrier):
            await self._open()
        async for event in self._carrier.events():
            if isinstance(event, Forged):
                self.forged += 1
            yield event

    async def __aiter__(self) -> AsyncIterator[SignedMessage]:
        """Verified messages. The log warns of the first forged one and of the first gap.

        `forged` counts forged messages.
        """
        async for event in self.events():
            if isinstance(event, SignedMessage):
                yield event
            elif type(event) not in self._warned:
                self._warned.add(type(event))
                what = (
                    "a message is not signed by the topic's owner and is left out: "
                    f"{event.error.message}"
                    if isinstance(event, Forged)
                    else describe_gap(event)
                )
                _LOG.warning("%s: %s Read events() to handle it.", self.name, what)

    async def close(self) -> None:
        """Stop receiving, and end a `connect` that still waits."""
        self._closing += 1
        try:
            if self._opening is not None:
                self._opening.cancel()
            async with self._changing:
                await self._carrier.close()
        finally:
            self._closing -= 1

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, signer: Signer, id: bytes, data: bytes) -> bytes:
        """Use signatures in the order of the calls, even if they are requested concurrently."""
        before = self._turn
        mine = self._turn = asyncio.get_running_loop().create_future()
        try:
            frame = soc.frame_of(await signer(soc.digest(id, data)), data)
            soc.verify(frame, id, self.address)
            if before is not None:
                # A cancelled call must not cancel the turn of another one.
                await asyncio.wait([before])
        finally:
            if before is None or before.done():
                mine.set_result(None)
            else:
                before.add_done_callback(lambda _: mine.set_result(None))
        return frame

    def __repr__(self) -> str:
        return f"<SignedTopic {self.name}>"


def _check_client(client: object, method: str) -> None:
    # Not by class: a program may pass an object with the same methods. Unlike the blocking client,
    # a mock also supports `async with`.
    is_blocking = hasattr(client, "__enter__") and not hasattr(client, "__aenter__")
    if is_blocking or not callable(getattr(client, method, None)):
        raise InvalidOption(
            f"`client` is {kind(client)}, not PubSubClient.",
            field="client",
            remedy="Pass a PubSubClient; the blocking client cannot carry a signed topic.",
        )


def _id(id: bytes | str) -> bytes:
    if isinstance(id, str):
        try:
            return bytes.fromhex(id) if _HEX.fullmatch(id) else soc.keccak256(id.encode())
        except UnicodeEncodeError:
            raise _wrong("id", "`id` has half of a surrogate pair.") from None
    if not is_bytes(id):
        raise _wrong("id", f"`id` is {type(id).__name__}, not bytes or a string.")
    if len(id) != soc.ID_BYTES:
        raise _wrong("id", f"`id` has {len(id)} bytes, not {soc.ID_BYTES}.")
    return bytes(id)


def _address(topic: bytes | str) -> bytes:
    if isinstance(topic, str):
        digits = topic.removeprefix("signed.")
        if not _HEX.fullmatch(digits):
            raise _wrong("topic", "`topic` is not 64 hex digits.")
        return bytes.fromhex(digits)
    if not is_bytes(topic):
        raise _wrong("topic", f"`topic` is {type(topic).__name__}, not bytes or a string.")
    if len(topic) != soc.ID_BYTES:
        raise _wrong("topic", f"`topic` has {len(topic)} bytes, not {soc.ID_BYTES}.")
    return bytes(topic)


def _wrong(field: str, message: str) -> InvalidOption:
    return InvalidOption(message, field=field, remedy="See `SignedTopic` for valid combinations.")
