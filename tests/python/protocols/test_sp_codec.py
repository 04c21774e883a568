"""The bytes of SP, with captures from NNG 1.11."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.links.unparsed import FrameError
from hanzoai.pubsub.sp.codec import (
    Decoder,
    Framing,
    Role,
    encode_hello,
    encode_message,
)
from tests.python.protocols.splits import CUTS, decode, pieces, reason_or_all

HELLO_PUB = bytes.fromhex("0053500000200000")
HELLO_SUB = bytes.fromhex("0053500000210000")
TEXT = b"sensor:temp=25"


def sub(framing: Framing = Framing.TCP, *, size: int = 1000) -> Decoder:
    return Decoder(Role.SUB, framing, max_message_size=size)


def test_hellos_are_those_of_nng() -> None:
    assert encode_hello(Role.PUB) == HELLO_PUB
    assert encode_hello(Role.SUB) == HELLO_SUB
    assert Role.PUB.peer is Role.SUB
    assert Role.SUB.peer is Role.PUB


@pytest.mark.parametrize(
    ("body", "tcp"),
    [
        (TEXT, "000000000000000e73656e736f723a74656d703d3235"),
        (b"", "0000000000000000"),
        (b"\0\1\2", "0000000000000003000102"),
    ],
)
def test_messages_are_those_of_nng(body: bytes, tcp: str) -> None:
    assert encode_message(body, Framing.TCP).hex() == tcp
    assert encode_message(body, Framing.IPC).hex() == "01" + tcp
    for framing, wire in ((Framing.TCP, tcp), (Framing.IPC, "01" + tcp)):
        assert decode(sub(framing), [HELLO_PUB + bytes.fromhex(wire)]) == [body]


@given(
    st.lists(st.binary(max_size=40), max_size=8),
    st.sampled_from(Framing),
    CUTS,
    st.sampled_from([-1, 1, 3]),
)
def test_messages_survive_every_split(
    bodies: list[bytes], framing: Framing, cuts: list[int], limit: int
) -> None:
    wire = HELLO_PUB + b"".join(encode_message(body, framing) for body in bodies)
    decoder = sub(framing)
    assert decode(decoder, pieces(wire, cuts), limit) == bodies
    assert decoder.pending == 0


def test_a_message_may_come_byte_by_byte() -> None:
    wire = HELLO_PUB + encode_message(TEXT, Framing.IPC) * 2
    assert decode(sub(Framing.IPC), [bytes((byte,)) for byte in wire]) == [TEXT, TEXT]


@pytest.mark.statement("N-41")
@pytest.mark.parametrize(
    "hello",
    ["0053500000100000", "0053500000210000", "0053500100200000", "0053500000200001", "474554202f"],
    ids=["another protocol", "same role", "version 1", "reserved bytes", "text"],
)
def test_a_wrong_hello_is_refused_at_its_first_wrong_byte(hello: str) -> None:
    wire = bytes.fromhex(hello)
    wrong = next(i for i in range(8) if wire[i] != HELLO_PUB[i])
    decoder = sub()
    decoder.feed(wire[:wrong])
    assert decoder.decode() == []
    assert not decoder.greeted
    decoder.feed(wire[wrong : wrong + 1])
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "bad_hello"


@pytest.mark.statement("N-41")
@pytest.mark.parametrize("kind", [0, 2])
def test_an_ipc_message_of_another_type_is_refused_at_once(kind: int) -> None:
    decoder = sub(Framing.IPC)
    decoder.feed(HELLO_PUB + encode_message(TEXT, Framing.IPC) + bytes((kind,)))
    assert decoder.decode() == [TEXT]
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "bad_type"


@pytest.mark.statement("N-41")
def test_a_message_over_the_limit_is_refused_by_its_length_alone() -> None:
    decoder = sub(size=1000)
    decoder.feed(HELLO_PUB + encode_message(bytes(1000), Framing.TCP))
    assert decoder.decode() == [bytes(1000)]
    decoder.feed((1001).to_bytes(8, "big"))
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "oversize"
    assert pickle.loads(pickle.dumps(caught.value)).reason == "oversize"


@pytest.mark.statement("N-41")
def test_a_publisher_refuses_data() -> None:
    decoder = Decoder(Role.PUB, Framing.TCP)
    decoder.feed(HELLO_SUB)
    assert decoder.decode() == []
    assert decoder.greeted
    decoder.feed(b"\0")
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "unexpected_data"


@given(st.binary(max_size=64), st.sampled_from(Framing), st.sampled_from(Role), st.booleans())
def test_any_bytes_give_messages_or_one_error(
    noise: bytes, framing: Framing, role: Role, greeted: bool
) -> None:
    decoder = Decoder(role, framing, max_message_size=16)
    hello = encode_hello(role.peer) if greeted else b""
    found = reason_or_all(decoder, [hello, noise])
    if isinstance(found, str):
        assert found in {"bad_hello", "bad_type", "oversize", "unexpected_data"}
    else:
        assert all(len(body) <= 16 for body in found)
        assert decoder.pending <= len(hello) + len(noise)
