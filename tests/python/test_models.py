"""The real model clients read recorded responses, and a writer publishes their output."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from hanzoai.pubsub.streams import (
    ModelError,
    ModelSource,
    from_anthropic,
    from_langchain,
    from_openai,
    stream_reader,
    stream_writer,
)
from hanzoai.pubsub.streams.parts import grow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import anthropic
    import openai
    from langchain_core.messages import AIMessageChunk

    from hanzoai.pubsub.testing import MemoryServer

# Importing the clients takes seconds, so import them only in processes that run these tests.
pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[2] / "spec" / "models"
EXPECTED: dict[str, Any] = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))
TOPIC = "chat.session.abc"
EVENTS = {"content-type": "text/event-stream"}
ASK: Any = {"model": "m", "stream": True}
MESSAGES: Any = [{"role": "user", "content": "weather?"}]


def beginning(recording: str, share: float) -> bytes:
    """A share of the events of a recorded answer."""
    events = (RECORDED / f"{recording}.sse").read_bytes().split(b"\n\n")
    return b"\n\n".join([*events[: int(len(events) * share)], b""])


def answer(recording: str, share: float = 1) -> Callable[[httpx2.Request], httpx2.Response]:
    body = beginning(recording, share)
    return lambda _: httpx2.Response(200, headers=EVENTS, content=body)


def anthropic_client(share: float = 1) -> anthropic.AsyncAnthropic:
    import anthropic

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer("anthropic", share)))
    return anthropic.AsyncAnthropic(api_key="k", base_url="http://model.test", http_client=http)


def openai_client(recording: str, share: float = 1) -> openai.AsyncOpenAI:
    import openai

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer(recording, share)))
    return openai.AsyncOpenAI(api_key="k", base_url="http://model.test", http_client=http)


async def openai_chat(share: float = 1, name: str = "openai-chat") -> ModelSource:
    client = openai_client(name, share)
    return from_openai(await client.chat.completions.create(messages=MESSAGES, **ASK))


async def openai_responses(share: float = 1) -> ModelSource:
    client = openai_client("openai-responses", share)
    return from_openai(await client.responses.create(input="weather?", **ASK))


async def anthropic_events(share: float = 1) -> ModelSource:
    client = anthropic_client(share)
    return from_anthropic(await client.messages.create(messages=MESSAGES, max_tokens=9, **ASK))


SOURCES: dict[str, Callable[..., Awaitable[ModelSource]]] = {
    "openai-chat": openai_chat,
    "openai-chat-one-index": partial(openai_chat, name="openai-chat-one-index"),
    "openai-responses": openai_responses,
    "anthropic": anthropic_events,
}


def tokens(usage: Any) -> int:
    return int(usage.get("output_tokens") or usage.get("completion_tokens"))


@pytest.mark.parametrize("name", SOURCES)
async def test_the_answer_of_a_model_is_published_in_parts(
    name: str, pubsub_memory: MemoryServer
) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        await writer.pipe(await SOURCES[name]())
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert final.parts == EXPECTED[name]["parts"]
    assert final.reason == EXPECTED[name]["finish_reason"]
    assert tokens(final.usage) == EXPECTED[name]["tokens"]


@pytest.mark.parametrize("name", SOURCES)
async def test_an_answer_whose_model_stream_is_cut_is_aborted(
    name: str, pubsub_memory: MemoryServer
) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(ModelError, match="without a finish reason"):
        async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
            await writer.pipe(await SOURCES[name](0.5))
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert (final.status, final.reason) == ("aborted", "error")


async def test_the_helper_of_anthropic_gives_the_same_parts(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    client = anthropic_client()
    asked = client.messages.stream(messages=MESSAGES, max_tokens=9, model="m")
    async with asked as stream, stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        await writer.pipe(from_anthropic(stream))
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert final.parts == EXPECTED["anthropic"]["parts"]


async def test_the_helper_of_openai_gives_the_same_parts() -> None:
    client = openai_client("openai-chat")
    parts: list[Any] = []
    async with client.chat.completions.stream(messages=MESSAGES, model="m") as stream:
        source = from_openai(stream)
        async for piece in source:
            grow(parts, piece)
    assert parts == EXPECTED["openai-chat"]["parts"]
    assert source.finish_reason == "tool_calls"


async def test_a_program_reads_the_pieces_of_a_model_itself() -> None:
    async def stream() -> AsyncIterator[Any]:
        choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
        yield {"object": "chat.completion.chunk", "choices": [choice]}

    source = from_openai(stream())
    assert [piece async for piece in source] == ["Hi"]
    assert source.finish_reason == "stop"


def test_clients_without_asyncio_give_the_same_parts() -> None:
    import openai

    http = httpx2.Client(transport=httpx2.MockTransport(answer("openai-chat")))
    client = openai.OpenAI(api_key="k", base_url="http://model.test", http_client=http)
    source = from_openai(client.chat.completions.create(messages=MESSAGES, **ASK))
    parts: list[Any] = []
    for piece in source:
        grow(parts, piece)
    assert parts == EXPECTED["openai-chat"]["parts"]
    assert source.finish_reason == "tool_calls"


async def test_a_langchain_model_is_published_as_it_streams(pubsub_memory: MemoryServer) -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    ps = pubsub_memory.client()
    model = GenericFakeChatModel(messages=iter([AIMessage(content="Let me look. Rain.")]))
    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        await writer.pipe(from_langchain(model.astream("weather?")))
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert final.text == "Let me look. Rain."


def test_chunks_of_langchain_hold_reasoning_citations_and_tool_calls() -> None:
    from langchain_core.messages import AIMessageChunk

    def call(args: str, id: str | None = None, name: str | None = None) -> AIMessageChunk:
        chunk: Any = {"index": 0, "id": id, "name": name, "args": args, "type": "tool_call_chunk"}
        return AIMessageChunk(content="", tool_call_chunks=[chunk])

    thought = AIMessageChunk(content=[{"type": "thinking", "thinking": "They want the weather."}])
    source: Any = {"type": "citation", "url": "https://example.com/w", "title": "Weather"}
    cited = AIMessageChunk(content=[{"type": "text", "text": "", "annotations": [source]}])
    end = AIMessageChunk(
        content="",
        response_metadata={"finish_reason": "tool_calls"},
        usage_metadata={"input_tokens": 7, "output_tokens": 12, "total_tokens": 19},
    )
    chunks = [
        thought,
        AIMessageChunk(content="Let me look 👩‍👧. "),
        cited,
        call("", "call_1", "weather"),
        call('{"city": "Kö'),
        call('ln"}'),
        end,
    ]
    answer = from_langchain(chunks)
    parts: list[Any] = []
    for piece in answer:
        grow(parts, piece)
    assert parts == EXPECTED["anthropic"]["parts"]
    assert answer.finish_reason == "tool_calls"
    assert tokens(answer.usage) == 12


async def test_a_model_that_fails_during_an_answer_aborts_the_stream(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    events = [
        {"type": "response.output_text.delta", "delta": "Let me "},
        {"type": "error", "message": "The model is overloaded."},
    ]
    with pytest.raises(ModelError, match="overloaded"):
        async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
            await writer.pipe(from_openai(events))
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert (final.status, final.text, final.reason) == ("aborted", "Let me ", "error")


async def test_the_asynchronous_stream_of_a_model_may_have_a_plain_close(
    pubsub_memory: MemoryServer,
) -> None:
    closed: list[bool] = []

    class Stream:
        async def __aiter__(self) -> AsyncIterator[Any]:
            yield {"type": "response.output_text.delta", "delta": "Hi"}
            yield {"type": "response.completed"}

        def close(self) -> None:
            closed.append(True)

    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC) as writer:
        await writer.pipe(from_openai(Stream()))
    assert (await stream_reader(ps, TOPIC).final()).text == "Hi"
    assert closed == [True]


async def test_a_cancelled_stream_closes_the_stream_of_the_model(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    begun, closed = asyncio.Event(), asyncio.Event()

    class Endless:
        def __aiter__(self) -> Endless:
            return self

        async def __anext__(self) -> object:
            await asyncio.sleep(0)
            begun.set()
            return {"type": "response.output_text.delta", "delta": "on "}

        async def close(self) -> None:
            closed.set()

    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        piping = asyncio.create_task(writer.pipe(from_openai(Endless())))
        await begun.wait()
        await writer.cancel("user")
        with pytest.raises(Exception, match="cancelled"):
            await piping
    assert closed.is_set()
