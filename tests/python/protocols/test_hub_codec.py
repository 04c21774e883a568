"""The bytes of the hub protocol, with captures from pub0sub's `0hub`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.hub.codec import (
    Add,
    Added,
    Publish,
    Published,
    Push,
    Remove,
    Removed,
    Reply,
    ReplyDecoder,
    Request,
    RequestDecoder,
    Subscribe,
    Subscribed,
    encode,
)
from hanzoai.pubsub.links.unparsed import FrameError
from tests.python.protocols.splits import CUTS, decode, pieces, reason_or_all

ONE, TWO, THREE = b"topic_1", b"topic_2", b"topic_3"

REQUESTS: list[tuple[Request, str]] = [
    (Subscribe((ONE, TWO)), "040000001102 07746f7069635f31 07746f7069635f32"),
    (
        Publish((ONE, TWO), b"hello"),
        "020000001a02 07746f7069635f31 07746f7069635f32 0000000568656c6c6f",
    ),
    (Add(1, (THREE,)), "0700000011 0000000000000001 01 07746f7069635f33"),
    (Remove(1, (ONE,)), "0900000011 0000000000000001 01 07746f7069635f31"),
    (Subscribe(()), "0400000001 00"),
    (Publish((b"",), b""), "0200000006 01 00 00000000"),
]
REPLIES: list[tuple[Reply, str]] = [
    (Subscribed(1, 2), "05000000000000000100000002"),
    (Published(2), "0300000002"),
    (Push(ONE, b"hello"), "0600000007746f7069635f310000000568656c6c6f"),
    (Added(1), "0800000001"),
    (Removed(1), "0a00000001"),
]

topics = st.lists(st.binary(max_size=255), max_size=4).map(tuple)
ids = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**32 - 1)
data = st.binary(max_size=40)
requests = st.one_of(
    st.builds(Publish, topics, data),
    st.builds(Subscribe, topics),
    st.builds(Add, ids, topics),
    st.builds(Remove, ids, topics),
)
replies = st.one_of(
    st.builds(Published, counts),
    st.builds(Subscribed, ids, counts),
    st.builds(Push, st.binary(max_size=255), data),
    st.builds(Added, counts),
    st.builds(Removed, counts),
)


@pytest.mark.statement("Z-23", "Z-25", "Z-30")
@pytest.mark.parametrize(("request_", "wire"), REQUESTS)
def test_requests_are_those_of_pub0sub(request_: Request, wire: str) -> None:
    assert encode(request_) == bytes.fromhex(wire)
    assert decode(RequestDecoder(), [bytes.fromhex(wire)]) == [request_]


@pytest.mark.statement("Z-30")
@pytest.mark.parametrize(("reply", "wire"), REPLIES)
def test_replies_are_those_of_pub0sub(reply: Reply, wire: str) -> None:
    assert encode(reply) == bytes.fromhex(wire)
    assert decode(ReplyDecoder(), [bytes.fromhex(wire)]) == [reply]


@pytest.mark.statement("Z-16")
@given(st.lists(requests, max_size=5), CUTS, st.sampled_from([-1, 1, 2]))
def test_requests_survive_every_split(found: list[Request], cuts: list[int], limit: int) -> None:
    wire = b"".join(map(encode, found))
    decoder = RequestDecoder()
    got = decode(decoder, pieces(wire, cuts), limit)
    assert got == found
    assert [type(a) for a in got] == [type(a) for a in found]
    assert decoder.pending == 0


@given(st.lists(replies, max_size=5), CUTS, st.sampled_from([-1, 1, 2]))
def test_replies_survive_every_split(found: list[Reply], cuts: list[int], limit: int) -> None:
    wire = b"".join(map(encode, found))
    decoder = ReplyDecoder()
    got = decode(decoder, pieces(wire, cuts), limit)
    assert got == found
    assert [type(a) for a in got] == [type(a) for a in found]
    assert decoder.pending == 0


@pytest.mark.parametrize("opcode", [0, 1, 3, 5, 6, 8, 10, 11, 255])
def test_an_opcode_that_is_not_a_request_is_refused_by_its_first_byte(opcode: int) -> None:
    decoder = RequestDecoder()
    decoder.feed(encode(Subscribe((ONE,))) + bytes((opcode,)))
    assert decoder.decode() == [Subscribe((ONE,))]
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "bad_opcode"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("0400000000", "bad_length"),
        ("0200000004 00000000", "bad_length"),
        ("0700000008 0000000000000001", "bad_length"),
        ("0400000003 01 0561", "bad_length"),
        ("0400000003 00 0161", "bad_length"),
        ("0400000002 02 00", "bad_length"),
        ("0200000008 01 0161 00000009 61", "bad_length"),
        ("0200000007 01 0161 00000009", "bad_length"),
        ("0200000005 01 0261 6200", "bad_length"),
        ("02ffffffff", "oversize"),
        ("040000ff01", "bad_length"),
        ("040000ff0a", "oversize"),
        ("020000000601 00 00000011", "oversize"),
    ],
)
def test_impossible_lengths_are_refused(wire: str, reason: str) -> None:
    decoder = RequestDecoder(max_data=16)
    decoder.feed(bytes.fromhex(wire).ljust(0x10200, b"\0"))
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("wire", "reason"),
    [("02", "bad_opcode"), ("0600000100", "topic_too_long"), ("060000000000000011", "oversize")],
)
def test_a_client_refuses_what_no_hub_sends(wire: str, reason: str) -> None:
    decoder = ReplyDecoder(max_data=16)
    decoder.feed(bytes.fromhex(wire))
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == reason


@pytest.mark.statement("Z-23", "Z-25")
def test_255_topics_of_255_bytes_are_the_most() -> None:
    most = Publish((bytes(255),) * 255, b"x")
    assert decode(RequestDecoder(), [encode(most)]) == [most]
    for wrong in (
        Subscribe((b"",) * 256),
        Subscribe((bytes(256),)),
        Push(bytes(256), b""),
    ):
        with pytest.raises(ValueError, match="at most 255"):
            encode(wrong)


@given(st.binary(max_size=64))
def test_any_bytes_give_frames_or_one_error(noise: bytes) -> None:
    for decoder in (RequestDecoder(max_data=16), ReplyDecoder(max_data=16)):
        found = reason_or_all(decoder, [noise])
        assert not isinstance(found, str) or found in {
            "bad_opcode",
            "bad_length",
            "oversize",
            "topic_too_long",
        }
