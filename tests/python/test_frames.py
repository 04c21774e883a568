"""Whole frames from a byte stream: the result does not depend on where the stream is split."""

from __future__ import annotations

import random

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from hanzoai.pubsub.transports.frames import WholeFrames, text_frames

LARGEST = 70_000


def wire(
    data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True, mask: bool = False
) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=mask)


class Taken:
    """The output: the messages, and other frames with the number of messages before them."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.others: list[tuple[int, bytes]] = []
        self.fragmented = False
        self.frames = WholeFrames(self.messages, self.other, LARGEST)

    def other(self, data: bytes) -> bool:
        self.others.append((len(self.messages), data))
        if not data[0] & 0x08:
            self.fragmented = not data[0] & 0x80
        return not self.fragmented


STREAM = [
    wire(b""),
    wire(b"a" * 125),
    wire(b"b" * 126, Opcode.BINARY),
    wire(b"c" * 65_536),
    wire(b"ping", Opcode.PING),
    wire(b"one", fin=False),
    wire(b"", Opcode.PING),
    wire(b"two", Opcode.CONT),
    wire(b"last"),
]
MESSAGES = [b"", b"a" * 125, b"b" * 126, b"c" * 65_536, b"last"]
OTHERS = [(4, frame) for frame in STREAM[4:8]]


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_that_is_cut_anywhere_gives_the_same_frames(seed: int) -> None:
    draw, taken, data = random.Random(seed), Taken(), b"".join(STREAM)
    while data:
        size = draw.choice((1, 2, 3, 7, 200, 30_000))
        assert taken.frames.feed(data[:size]) is None
        data = data[size:]
    assert taken.messages == MESSAGES
    assert taken.others == OTHERS
    assert taken.frames.rest() == b""


def test_a_message_inside_a_fragmented_one_is_left_to_the_library() -> None:
    taken, intruder = Taken(), wire(b"intruder")
    taken.frames.feed(wire(b"one", fin=False) + intruder)
    assert taken.messages == []
    assert taken.others[-1] == (0, intruder)


@pytest.mark.parametrize(
    "frame", [wire(b"x" * (LARGEST + 1)), wire(b"hello", mask=True)], ids=["too large", "masked"]
)
def test_what_no_server_may_send_is_left_to_the_library_with_all_that_follows(frame: bytes) -> None:
    taken, after = Taken(), wire(b"after")
    assert taken.frames.feed(wire(b"before") + frame[:20]) == frame[:20]
    assert taken.frames.feed(frame + after) == frame + after
    assert taken.messages == [b"before"]
    assert taken.others == []


def test_an_incomplete_frame_at_the_end_is_known() -> None:
    taken, frame = Taken(), wire(b"hello")
    taken.frames.feed(frame + frame[:4])
    assert taken.frames.rest() == frame[:4]


def test_messages_of_every_length_are_written_as_masked_text_frames() -> None:
    messages = [b"", b"a", b"b" * 125, b"c" * 126, b"d" * 65_535, b"e" * 65_536]
    server = ServerProtocol(state=OPEN)
    written = text_frames(messages)
    server.receive_data(written)
    frames = [frame for frame in server.events_received() if isinstance(frame, Frame)]
    assert server.parser_exc is None
    assert [frame.opcode for frame in frames] == [Opcode.TEXT] * len(messages)
    assert [bytes(frame.data) for frame in frames] == messages
    assert text_frames(messages) != written  # the keys are drawn each time
