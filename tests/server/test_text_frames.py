from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol

from pubsub_server.listeners.websocket.text_frames import text_frames

LIMIT = 70_000


def masked(text: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    bare = Frame(Opcode.TEXT, text).serialize(mask=False)
    at = len(bare) - len(text)
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text))
    return bare[:1] + bytes((bare[1] | 0x80,)) + bare[2:at] + mask + body


def test_whole_messages_are_read_up_to_the_first_that_is_not_whole() -> None:
    texts = [b"a", b"", b"x" * 125, b"y" * 126, b"z" * 65_535, b"w" * 65_536]
    data = b"".join(map(masked, texts))
    assert text_frames(data, LIMIT) == (texts, len(data))
    assert text_frames(data[:-1], LIMIT) == (texts[:-1], len(data) - len(masked(texts[-1])))


def test_a_message_over_the_limit_is_left_to_the_parser() -> None:
    data = masked(b"x" * 10)
    assert text_frames(data, 10) == ([b"x" * 10], len(data))
    assert text_frames(data, 9) == ([], 0)


def test_a_frame_without_a_mask_is_left_to_the_parser() -> None:
    for size in (0, 5, 125, 126, 65_536):
        bare = Frame(Opcode.TEXT, b"x" * size).serialize(mask=False)
        assert text_frames(bare + bytes(200), LIMIT) == ([], 0)


def test_incomplete_text_messages_are_left_to_the_parser() -> None:
    text = masked(b"text")
    for first in (0x01, 0x80, 0x82, 0x88, 0x89, 0x8A, 0x91, 0xA1, 0xC1, 0x83):
        assert text_frames(text + bytes((first,)) + text[1:], LIMIT) == ([b"text"], len(text))


def frame(first: int, mask: bytes, text: bytes) -> bytes:
    return bytes((first,)) + masked(text, mask)[1:]


frames = st.builds(
    frame,
    st.sampled_from([0x81] * 6 + [0x01, 0x80, 0x82, 0x89, 0x88, 0xC1]),
    st.binary(min_size=4, max_size=4),
    st.one_of(st.binary(max_size=140), st.integers(65_500, 65_600).map(lambda n: b"n" * n)),
)


@given(st.lists(frames | st.binary(max_size=20), max_size=5), st.integers(0, 40))
@settings(max_examples=300)
def test_the_reader_agrees_with_the_library(pieces: list[bytes], cut: int) -> None:
    data = b"".join(pieces)
    data = data[: len(data) - cut]
    found, at = text_frames(data, LIMIT)
    parser = Protocol(SERVER, max_size=LIMIT)
    parser.receive_data(data[:at])
    read: list[Any] = parser.events_received()
    assert [bytes(frame.data) for frame in read] == found
    assert all(frame.opcode is Opcode.TEXT and frame.fin for frame in read)
    assert parser.parser_exc is None
