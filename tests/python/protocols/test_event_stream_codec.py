"""The bytes of the event stream, with captures from Pilot 1.18."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.eventstream.codec import (
    MAX_PAYLOAD,
    MAX_TOPIC,
    Decoder,
    Event,
    encode_event,
)
from hanzoai.pubsub.links.unparsed import FrameError
from tests.python.protocols.splits import CUTS, decode, pieces, reason_or_all


@pytest.mark.statement("P-22")
@pytest.mark.parametrize(
    ("event", "wire"),
    [
        (Event(b"status", b""), "000673746174757300000000"),
        (Event(b"status", b"online"), "0006737461747573000000066f6e6c696e65"),
        (
            Event(b"metrics", b'{"cpu":42}'),
            "00076d6574726963730000000a7b22637075223a34327d",
        ),
        (Event(b"*", b""), "00012a00000000"),
        (Event(b"", b""), "000000000000"),
    ],
)
def test_events_are_those_of_pilot(event: Event, wire: str) -> None:
    assert encode_event(*event).hex() == wire
    assert decode(Decoder(), [bytes.fromhex(wire)]) == [event]


@pytest.mark.statement("P-22")
@given(
    st.lists(st.builds(Event, st.binary(max_size=20), st.binary(max_size=40)), max_size=8),
    CUTS,
    st.sampled_from([-1, 1, 3]),
)
def test_events_survive_every_split(events: list[Event], cuts: list[int], limit: int) -> None:
    wire = b"".join(encode_event(*event) for event in events)
    decoder = Decoder()
    assert decode(decoder, pieces(wire, cuts), limit) == events
    assert decoder.pending == 0


@pytest.mark.statement("P-17")
def test_a_topic_has_at_most_1024_bytes() -> None:
    longest = Event(bytes(MAX_TOPIC), b"x")
    decoder = Decoder()
    assert decode(decoder, [encode_event(*longest)]) == [longest]
    with pytest.raises(ValueError, match="at most 1024"):
        encode_event(bytes(MAX_TOPIC + 1))
    decoder.feed((MAX_TOPIC + 1).to_bytes(2, "big"))
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "topic_too_long"


@pytest.mark.statement("P-18")
def test_a_payload_has_at_most_16_mib() -> None:
    largest = Event(b"t", bytes(MAX_PAYLOAD))
    wire = encode_event(*largest)
    decoder = Decoder()
    chunk = 1 << 18
    assert decode(decoder, [wire[i : i + chunk] for i in range(0, len(wire), chunk)]) == [largest]
    with pytest.raises(ValueError, match="at most 16777216"):
        encode_event(b"t", bytes(MAX_PAYLOAD + 1))
    decoder.feed(encode_event(b"before") + b"\0\1t" + (MAX_PAYLOAD + 1).to_bytes(4, "big"))
    assert decoder.decode() == [Event(b"before", b"")]
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == "oversize"


@given(st.binary(max_size=64))
def test_any_bytes_give_events_or_one_error(noise: bytes) -> None:
    decoder = Decoder(max_payload=16)
    found = reason_or_all(decoder, [noise])
    if isinstance(found, str):
        assert found in {"topic_too_long", "oversize"}
    else:
        assert sum(6 + len(e.topic) + len(e.payload) for e in found) + decoder.pending == len(noise)
