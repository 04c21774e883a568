"""Writers and readers of streams without asyncio."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import InvalidOption, PubSub
from hanzoai.pubsub.streams import StreamCancelled, stream_reader, stream_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from hanzoai.pubsub.testing.threaded import ThreadedServer

TOPIC = "chat.session.abc"
BOUND = 60


@pytest.fixture
def ps(pubsub_server: ThreadedServer) -> Iterator[PubSub]:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as client:
        yield client


class Model:
    """An answer of a model, which knows at its end why it ended."""

    finish_reason: str | None = None
    usage: object = None

    def __init__(self, *pieces: str) -> None:
        self._pieces = iter(pieces)

    def __iter__(self) -> Iterator[str]:
        yield from self._pieces
        self.finish_reason = "length"
        self.usage = {"tokens": 2}


def test_a_writer_shows_what_it_has_written(ps: PubSub) -> None:
    with stream_writer(ps, TOPIC, id="st_1", epoch=7) as writer:
        writer.write("Hello")
        writer.write({"type": "tool-call", "id": "c1", "name": "weather", "text": "{}"})
        writer.write({"text": " "})
        assert (writer.id, writer.epoch, writer.text) == ("st_1", 7, "Hello")
        assert [part["type"] for part in writer.parts] == ["text", "tool-call"]
        assert writer.parts[1]["text"] == "{} "
        assert repr(writer).startswith("<BlockingStreamWriter ")
        assert not writer.cancelled
    assert writer.stats


def test_the_stream_of_an_asynchronous_model_is_rejected(ps: PubSub) -> None:
    async def generate() -> AsyncIterator[str]:
        yield "x"

    source: Any = generate()
    with (
        pytest.raises(InvalidOption, match="not a plain iterator") as caught,
        stream_writer(ps, TOPIC) as writer,
    ):
        writer.pipe(source)
    assert "blocking client of the model" in (caught.value.remedy or "")
    assert stream_reader(ps, TOPIC).final().reason == "error"


def test_a_block_that_reads_ends_quietly_when_the_client_was_closed_before(ps: PubSub) -> None:
    with stream_reader(ps, TOPIC) as reader:
        ps.close()
    reader.close()


def test_a_model_tells_why_its_answer_ends_and_what_it_used(ps: PubSub) -> None:
    with stream_writer(ps, TOPIC) as writer:
        writer.pipe(Model("a", "b"), finish_reason="stop")
    with stream_reader(ps, TOPIC) as reader:
        end = reader.final()
    assert (end.text, end.reason, end.usage) == ("ab", "length", {"tokens": 2})


def test_pieces_without_a_reason_end_for_the_given_one(ps: PubSub) -> None:
    with stream_writer(ps, TOPIC) as writer:
        writer.pipe(["a", "b"], finish_reason="enough")
    with stream_reader(ps, TOPIC) as reader:
        assert reader.final().reason == "enough"


def test_a_model_that_raises_aborts_the_stream(ps: PubSub) -> None:
    def broken() -> Iterator[str]:
        yield "half"
        raise RuntimeError("out of tokens")

    with stream_writer(ps, TOPIC) as writer, pytest.raises(RuntimeError, match="out of tokens"):
        writer.pipe(broken())
    with stream_reader(ps, TOPIC) as reader:
        end = reader.final()
    assert (end.status, end.text, end.reason) == ("aborted", "half", "error")


def test_an_aborted_stream_ends_with_its_reason(ps: PubSub) -> None:
    writer = stream_writer(ps, TOPIC)
    assert writer.open() is writer
    writer.write("half")
    writer.abort("overloaded")
    with stream_reader(ps, TOPIC) as reader:
        end = reader.final()
    assert (end.text, end.reason) == ("half", "overloaded")


def test_a_writer_that_is_cancelled_raises_at_its_next_token_and_ends_quietly(ps: PubSub) -> None:
    with stream_writer(ps, TOPIC) as writer:
        writer.write("half")
        writer.cancel("shutdown", by="ops")
        assert writer.cancelled
        with pytest.raises(StreamCancelled):
            writer.write("more")
    with stream_reader(ps, TOPIC) as reader:
        assert reader.final().reason == "shutdown"


def test_a_reader_steers_the_writer(ps: PubSub) -> None:
    steered: queue.Queue[tuple[Any, str]] = queue.Queue()
    with stream_writer(ps, TOPIC, on_steer=lambda data, by: steered.put((data, by))) as writer:
        writer.write("half")
        with stream_reader(ps, TOPIC) as reader:
            next(iter(reader))
            reader.steer({"tone": "short"})
            assert steered.get(timeout=BOUND)[0] == {"tone": "short"}


def test_a_steer_handler_may_write(ps: PubSub) -> None:
    def steer(data: Any, by: str) -> None:
        writer.write(data)
        steered.put(by)

    steered: queue.Queue[str] = queue.Queue()
    with stream_writer(ps, TOPIC, on_steer=steer) as writer:
        writer.write("half")
        with stream_reader(ps, TOPIC) as reader:
            next(iter(reader))
            reader.steer(" and half")
            steered.get(timeout=BOUND)
    with stream_reader(ps, TOPIC) as reader:
        assert reader.final().text == "half and half"


def test_a_steer_handler_gets_one_request_at_a_time_in_order(ps: PubSub) -> None:
    def steer(data: Any, by: str) -> None:
        if data == 2:
            second.set()
        # The first call returns before the second one begins.
        steered.put((data, second.wait(0.2)))

    second = threading.Event()
    steered: queue.Queue[tuple[int, bool]] = queue.Queue()
    with (
        stream_writer(ps, TOPIC, on_steer=steer) as writer,
        stream_reader(ps, TOPIC) as reader,
    ):
        writer.write("half")
        next(iter(reader))
        reader.steer(1)
        reader.steer(2)
        assert [steered.get(timeout=BOUND) for _ in range(2)] == [(1, False), (2, True)]


def test_a_cancel_handler_is_a_function_that_may_use_the_client(ps: PubSub) -> None:
    def cancel(stream: str, reason: str) -> None:
        ps.publish("chat.session.asked", {"type": stream, "data": reason})

    with ps.subscribe("chat.session.asked") as asked, stream_writer(ps, TOPIC, id="st_1") as writer:
        writer.write("half")
        with stream_reader(ps, TOPIC, on_cancel=cancel) as reader:
            next(iter(reader))
            reader.cancel("enough")
        message = asked.next(timeout=BOUND)
        assert (message.type, message.data) == ("st_1", "enough")
        assert not writer.cancelled


def test_a_reader_shows_what_it_has_read_and_leaves_the_stream_alone(ps: PubSub) -> None:
    with stream_writer(ps, TOPIC, id="st_1", meta={"model": "m"}) as writer:
        writer.write("half")
        reader = stream_reader(ps, TOPIC)
        assert not reader.id
        assert reader.open() is reader
        events = iter(reader)
        while not reader.text:
            next(events)
        assert (reader.id, reader.text, reader.meta) == ("st_1", "half", {"model": "m"})
        assert [part["type"] for part in reader.parts] == ["text"]
        assert (reader.stale, reader.ignored) == (False, 0)
        assert repr(reader).startswith("<BlockingStreamReader ")
        reader.close()
        writer.write(" and half")
    with stream_reader(ps, TOPIC) as reader:
        assert reader.final().text == "half and half"
