"""Signed messages: single-owner chunks (SOC), which Swarm's Bee nodes also exchange.

A frame is ``signature (65) ‖ span (8, little-endian) ‖ payload (0 … 4,096)``. The signature covers
a topic id of 32 bytes and the payload. Anyone who knows the id recovers the signer's address from
the frame, and ``keccak256(id ‖ owner)`` is the address of the topic. So a reader verifies the
author of a message without trusting the servers that carried it. This module does no I/O.

    frame = sign(key, id, b"hello")
    owner, payload = verify(frame, id, topic_address(id, owner_of(key)))

The signature is that of Ethereum's ``personal_sign`` over ``keccak256(id ‖ address of the
payload)``. Anyone who has a signed frame can send it again: put a counter or a time into the
payload to detect repeated frames.

Requires the extra ``signed``: ``pip install 'hanzoai.pubsub[signed]'``.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from hanzoai.pubsub.errors import InvalidPayload, MissingPackage
from hanzoai.pubsub.links.unparsed import is_bytes
from hanzoai.pubsub.payload_bytes import BASE64, bytes_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

ID_BYTES: Final = 32
"""Length of a topic id, a key or a topic address, in bytes."""
OWNER_BYTES: Final = 20
SIGNATURE_BYTES: Final = 65
SPAN_BYTES: Final = 8
HEAD_BYTES: Final = SIGNATURE_BYTES + SPAN_BYTES
"""Number of bytes before the payload."""
MAX_PAYLOAD: Final = 4096
MAX_FRAME: Final = HEAD_BYTES + MAX_PAYLOAD

_EIP_191: Final = b"\x19Ethereum Signed Message:\n32"
_SAFE: Final = 2**53


def _load(name: str, extension: str) -> Any:
    try:
        with warnings.catch_warnings():
            # Types that SWIG generates have no `__module__`, and Python warns about it. Warning
            # filters apply to all threads, so this one covers only the import of the extension.
            warnings.simplefilter("ignore", DeprecationWarning)
            import_module(extension)
        _outlive(sys.modules.get("swig_runtime_data4"))
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(
            f"Signed messages need the package of the module `{name}`.",
            remedy="Install it: pip install 'hanzoai.pubsub[signed]'.",
            cause=error,
        ) from None


def _outlive(runtime: ModuleType | None) -> None:
    """Keep the table of SWIG's types until the process has ended.

    Its destructor creates another type without `__module__`. Where warnings are errors, that fails,
    and the process crashes at exit.
    """
    table = getattr(runtime, "type_pointer_capsule", None)
    if table is not None and sys.implementation.name == "cpython":
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(table))


# Neither has type stubs.
_curve: Final = _load("wallycore", "_wallycore")
_keccak: Final = cast("Callable[[bytes], Any]", _load("sha3", "_pysha3").keccak_256)
_SIGN: Final = cast("int", _curve.EC_FLAG_ECDSA | _curve.EC_FLAG_RECOVERABLE)


class Verified(NamedTuple):
    """The content of a verified frame.

    Attributes:
        owner: Address of the signer, 20 bytes.
        payload: The signed payload.
    """

    owner: bytes
    payload: bytes


class SignedData(NamedTuple):
    """A signed message in the form that a HIP-56 topic carries.

    Attributes:
        owner: The claimed signer, 20 bytes; call `verify` to prove it.
        id: Topic id, 32 bytes.
        frame: The frame to pass to `verify`.
    """

    owner: bytes
    id: bytes
    frame: bytes


def keccak256(data: bytes) -> bytes:
    """Return the original Keccak-256, which differs from SHA3-256."""
    return cast("bytes", _keccak(data).digest())


def _empty_subtrees() -> tuple[bytes, ...]:
    nodes = [bytes(32)]
    while len(nodes) < 8:
        nodes.append(keccak256(nodes[-1] * 2))
    return tuple(nodes)


_EMPTY: Final = _empty_subtrees()
"""Root of a tree whose leaves are zeros, by height."""


def owner_of(key: bytes) -> bytes:
    """Return the address that belongs to a key.

    Args:
        key: Private key, 32 bytes.

    Raises:
        InvalidPayload: It is not a secp256k1 private key; `field` is ``key``.
    """
    _check(key, "key", ID_BYTES)
    try:
        public = _curve.ec_public_key_from_private_key(key)
    except ValueError:
        raise _bad_key() from None
    return _address(public)


def topic_address(id: bytes, owner: bytes) -> bytes:
    """Return the address, 32 bytes, of the topic with this id and owner.

    Raises:
        InvalidPayload: An argument has the wrong length.
    """
    return keccak256(_check(id, "id", ID_BYTES) + _check(owner, "owner", OWNER_BYTES))


def cac_address(payload: bytes) -> bytes:
    """Return the content address of a payload, 32 bytes.

    Raises:
        InvalidPayload: It has more than 4,096 bytes.
    """
    _check_payload(payload)
    # The tree has 128 leaves. All leaves after the payload are zero, so their roots are known.
    nodes = [payload[at : at + 32].ljust(32, b"\0") for at in range(0, len(payload), 32)]
    for empty in _EMPTY[:-1]:
        if len(nodes) % 2:
            nodes.append(empty)
        nodes = [keccak256(nodes[at] + nodes[at + 1]) for at in range(0, len(nodes), 2)]
    return keccak256(_span(payload) + (nodes[0] if nodes else _EMPTY[-1]))


def digest(id: bytes, payload: bytes) -> bytes:
    """Return the 32 bytes that a signer signs with ``personal_sign`` (EIP-191).

    Raises:
        InvalidPayload: The id is not 32 bytes long, or the payload is longer than 4,096 bytes.
    """
    return keccak256(_check(id, "id", ID_BYTES) + cac_address(payload))


def sign(key: bytes, id: bytes, payload: bytes) -> bytes:
    """Sign a payload.

    Args:
        key: Private key, 32 bytes.
        id: Topic id, 32 bytes.
        payload: At most 4,096 bytes; may be empty.

    Returns:
        The frame.

    Raises:
        InvalidPayload: An argument has a wrong length; `field` names it.
    """
    _check(key, "key", ID_BYTES)
    hashed = keccak256(_EIP_191 + digest(id, payload))
    try:
        header, *rest = cast("bytes", _curve.ec_sig_from_bytes(key, hashed, _SIGN))
    except ValueError:
        raise _bad_key() from None
    # The secp256k1 library puts the recovery id first, and adds 31 to it for compressed keys.
    return frame_of(bytes((*rest, 27 + ((header - 27) & 3))), payload)


def frame_of(signature: bytes, payload: bytes) -> bytes:
    """Return the frame of a payload that another party has signed.

    Args:
        signature: r, s and v, 65 bytes. v is 27 or 28; 0 and 1, which some wallets return, are
            converted to 27 and 28.
        payload: The payload whose `digest` was signed.

    Raises:
        InvalidPayload: An argument has a wrong length; `field` names it.
    """
    _check(signature, "signature", SIGNATURE_BYTES)
    if signature[64] < 2:
        signature = signature[:64] + bytes((signature[64] + 27,))
    return signature + _span(_check_payload(payload)) + payload


def recover(frame: bytes, id: bytes) -> Verified:
    """Return the signer of a frame under this id. Every well-formed signature has a signer.

    Raises:
        InvalidPayload: The frame is truncated or too long, its span is not the length of its
            payload, or the signature has no signer; `field` names the part.
    """
    _check(id, "id", ID_BYTES)
    if not HEAD_BYTES <= len(frame) <= MAX_FRAME:
        raise InvalidPayload(
            f"A signed frame has {HEAD_BYTES} to {MAX_FRAME:,} bytes, not {len(frame):,}.",
            field="frame",
            remedy="Send exactly one frame: signature (65), span (8), payload (up to 4,096).",
        )
    payload = bytes(frame[HEAD_BYTES:])
    span = int.from_bytes(frame[SIGNATURE_BYTES:HEAD_BYTES], "little")
    if span != len(payload):
        raise InvalidPayload(
            f"The span is {span:,} bytes, but the payload has {len(payload):,}.",
            field="span",
            remedy="Write the length of the payload as 8 bytes, little-endian.",
        )
    v = frame[64]
    if not 27 <= v <= 34:
        raise _bad_signature("its last byte is not 27 or 28")
    header = bytes((27 + ((v - 27) & 3),))
    hashed = keccak256(_EIP_191 + digest(id, payload))
    try:
        public = _curve.ec_sig_to_public_key(hashed, header + bytes(frame[:64]))
    except ValueError:
        raise _bad_signature("it belongs to no key") from None
    return Verified(_address(public), payload)


def verify(frame: bytes, id: bytes, topic: bytes) -> Verified:
    """Check that the owner of a topic has signed a frame.

    Args:
        frame: The received frame.
        id: The topic's id, 32 bytes.
        topic: The topic's address, 32 bytes.

    Raises:
        InvalidPayload: Same cases as `recover`, or the signer is not the topic's owner; `field`
            names the part.
    """
    _check(topic, "topic", ID_BYTES)
    found = recover(frame, id)
    if topic_address(id, found.owner) != topic:
        raise _bad_signature("the topic's owner has not signed this payload under this id")
    return found


# ---------------------------------------------------------------- inside HIP-56 topics


def to_data(frame: bytes, id: bytes, owner: bytes) -> dict[str, Any]:
    """Convert a signed message to the `data` of a HIP-56 message.

    Returns:
        ``{"owner", "id", "signature", "payload"}``: the first three in hex, and the payload as
        JSON, a string, or ``{"$base64": "…"}``. If other languages would write the numbers or keys
        of the JSON differently, the payload is a string, so that every reader gets the same bytes.

    Raises:
        InvalidPayload: An argument has a wrong length; `field` names it.
    """
    if len(frame) < HEAD_BYTES:
        raise InvalidPayload(f"The frame has only {len(frame)} bytes.", field="frame")
    payload = bytes(frame[HEAD_BYTES:])
    return {
        "owner": _check(owner, "owner", OWNER_BYTES).hex(),
        "id": _check(id, "id", ID_BYTES).hex(),
        "signature": bytes(frame[:SIGNATURE_BYTES]).hex(),
        "payload": _json(payload),
    }


def from_data(data: object) -> SignedData:
    """Read the `data` of a HIP-56 message as a signed message; nothing is verified.

    Args:
        data: The form that `to_data` returns. Hex may be upper case and begin with ``0x``.

    Raises:
        InvalidPayload: A field is missing or wrong; `field` names it.
    """
    if not isinstance(data, dict):
        raise InvalidPayload(
            "`data` of a signed message is an object with owner, id, signature and payload.",
            field="data",
            remedy="Build it with `to_data`.",
        )
    fields = cast("Mapping[str, object]", data)
    owner = _from_hex(fields, "owner", OWNER_BYTES)
    id = _from_hex(fields, "id", ID_BYTES)
    signature = _from_hex(fields, "signature", SIGNATURE_BYTES)
    if "payload" not in fields:
        raise InvalidPayload("The signed message has no `payload`.", field="payload", remedy="")
    try:
        payload = bytes_of(fields["payload"])
    except (ValueError, TypeError):
        raise InvalidPayload("`payload` is not a JSON value.", field="payload") from None
    _check_payload(payload)
    return SignedData(owner, id, signature + _span(payload) + payload)


# ---------------------------------------------------------------- parts


def _address(public: bytes) -> bytes:
    return keccak256(bytes(_curve.ec_public_key_decompress(public))[1:])[12:]


def _span(payload: bytes) -> bytes:
    return len(payload).to_bytes(SPAN_BYTES, "little")


def _check(value: bytes, field: str, length: int) -> bytes:
    if not is_bytes(value):
        raise InvalidPayload(
            f"`{field}` is {type(value).__name__}, not bytes.",
            field=field,
            remedy=f"Pass {length} bytes; bytes.fromhex reads hex digits without 0x.",
        )
    if len(value) != length:
        raise InvalidPayload(
            f"`{field}` has {len(value)} bytes, not {length}.",
            field=field,
            remedy=f"Pass {length} bytes.",
        )
    return bytes(value)


def _check_payload(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise InvalidPayload(
            f"A signed payload has at most {MAX_PAYLOAD:,} bytes, not {len(payload):,}.",
            field="payload",
            remedy="Sign a reference to the content, or split it.",
        )
    return payload


def _bad_key() -> InvalidPayload:
    return InvalidPayload(
        "`key` is not a private key of secp256k1.",
        field="key",
        remedy="Pass 32 random bytes that are not zero.",
    )


def _bad_signature(why: str) -> InvalidPayload:
    return InvalidPayload(
        f"The signature is not valid: {why}.",
        field="signature",
        remedy="Sign with the key of the topic's owner, under the topic's id.",
    )


def _from_hex(fields: Mapping[str, object], name: str, length: int) -> bytes:
    text = fields.get(name)
    digits = text[2:] if isinstance(text, str) and text[:2] in {"0x", "0X"} else text
    if (
        not isinstance(digits, str)
        or len(digits) != 2 * length
        or any(each not in "0123456789abcdefABCDEF" for each in digits)
    ):
        raise InvalidPayload(
            f"`{name}` of the signed message is not {2 * length} hex digits.",
            field=name,
            remedy=f"Write {length} bytes as hex.",
        )
    return bytes.fromhex(digits)


def _json(payload: bytes) -> Any:
    value = value_of(payload)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return value
    return value if _portable(value) else text


def _portable(value: object) -> bool:
    """Whether other languages write this JSON with the same bytes."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        # JavaScript moves numeric keys to the front, and treats `__proto__` specially.
        return all(
            not (key.isascii() and key.isdigit()) and key not in {"__proto__", BASE64}
            for key in fields
        ) and all(map(_portable, fields.values()))
    if isinstance(value, list):
        return all(map(_portable, cast("list[object]", value)))
    if isinstance(value, float):
        return False
    return not isinstance(value, int) or -_SAFE < value < _SAFE
