"""Chains, models and tools of the real LangChain write to a stream through a callback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models.fake_chat_models import (
    FakeMessagesListChatModel,
    GenericFakeChatModel,
)
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.streams import from_langchain, stream_reader, stream_writer
from hanzoai.pubsub.streams.langchain import BlockingStreamCallback, StreamCallback
from hanzoai.pubsub.streams.parts import grow

if TYPE_CHECKING:
    from hanzoai.pubsub.testing import MemoryServer

TOPIC = "chat.session.abc"
USAGE: Any = {"input_tokens": 7, "output_tokens": 12, "total_tokens": 19}


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"Rain in {city}."


def agent() -> Any:
    """A model that streams, a tool, and a model that does not stream."""
    call: Any = {"type": "tool_call", "id": "call_1", "name": "weather", "args": {"city": "Köln"}}
    answer = AIMessage(content="It rains.", usage_metadata=USAGE, id="m2")
    thinks = GenericFakeChatModel(messages=iter([AIMessage(content="Let me look 👩‍👧.")]))
    asks = FakeMessagesListChatModel(
        responses=[AIMessage(content="", tool_calls=[call], usage_metadata=USAGE, id="m1")]
    )
    says = FakeMessagesListChatModel(responses=[answer])
    hidden = FakeMessagesListChatModel(responses=[AIMessage(content="A title")])

    async def run(question: str) -> str:
        await thinks.ainvoke(question)
        asked = await asks.ainvoke(question)
        assert isinstance(asked, AIMessage)
        result = await weather.ainvoke(asked.tool_calls[0])
        await hidden.with_config(tags=["nostream"]).ainvoke(question)
        answer = await says.ainvoke([HumanMessage(question), asked, result])
        return str(answer.content)

    return RunnableLambda(run)


async def test_a_run_of_models_and_tools_is_one_answer(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        callback = StreamCallback(writer)
        assert await agent().ainvoke("weather?", config={"callbacks": [callback]}) == "It rains."
        await writer.complete(callback.finish_reason, usage=callback.usage)
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert final.parts == [
        {"type": "text", "text": "Let me look 👩‍👧."},
        {"type": "tool-call", "id": "call_1", "name": "weather", "text": '{"city": "Köln"}'},
        {"type": "tool-result", "id": "call_1", "output": "Rain in Köln."},
        {"type": "text", "text": "It rains."},
    ]
    assert (final.reason, final.usage) == (
        "unknown",
        {"input_tokens": 14, "output_tokens": 24, "total_tokens": 38},
    )


async def test_a_model_that_can_stream_does_so_where_it_is_only_invoked(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    model = GenericFakeChatModel(messages=iter([AIMessage(content="one two three")]))
    written: list[Any] = []
    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        write = writer.write

        async def noted(piece: Any) -> None:
            written.append(piece)
            await write(piece)

        writer.write = noted  # type: ignore[method-assign]
        await model.ainvoke("?", config={"callbacks": [StreamCallback(writer)]})
    assert written == ["one", " ", "two", " ", "three"]
    assert (await stream_reader(ps, TOPIC, id="r1").final()).text == "one two three"


async def test_a_cancelled_stream_ends_the_run(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    began, stopped = asyncio.Event(), asyncio.Event()

    async def run(_: str) -> None:
        model = GenericFakeChatModel(messages=iter([AIMessage(content="on and on")] * 1_000_000))
        try:
            while True:
                await model.ainvoke("?")
                began.set()
                await asyncio.sleep(0)
        finally:
            stopped.set()

    async def answer() -> None:
        async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
            config: Any = {"callbacks": [StreamCallback(writer)]}
            await RunnableLambda(run).ainvoke("?", config=config)

    answering = asyncio.create_task(answer())
    await began.wait()
    reader = stream_reader(ps, TOPIC, id="r1")
    reader.open()
    while not reader.text:
        await anext(reader)
    await reader.cancel("user")
    await answering
    final = await reader.final()
    assert stopped.is_set()
    assert (final.status, final.reason) == ("aborted", "user")


async def test_a_model_that_fails_aborts_the_stream(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()

    async def run(question: str) -> None:
        await GenericFakeChatModel(messages=iter([AIMessage(content="Half.")])).ainvoke(question)
        raise RuntimeError("overloaded")

    async def answer() -> None:
        async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
            config: Any = {"callbacks": [StreamCallback(writer)]}
            await RunnableLambda(run).ainvoke("?", config=config)

    with pytest.raises(RuntimeError, match="overloaded"):
        await answer()
    final = await stream_reader(ps, TOPIC, id="r1").final()
    assert (final.status, final.text) == ("aborted", "Half.")


async def test_the_log_names_the_remedy_for_invoke_in_another_thread(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    model = GenericFakeChatModel(messages=iter([AIMessage(content="one")]))
    async with stream_writer(ps, TOPIC, id="r1", window=0) as writer:
        config: Any = {"callbacks": [StreamCallback(writer)]}
        await asyncio.to_thread(lambda: model.invoke("?", config=config))
        assert not writer.text
    assert "`invoke` needs `BlockingStreamCallback`" in caplog.text


def test_the_blocking_callback_writes_what_invoke_gives() -> None:
    written: list[Any] = []

    class Writer:
        write = staticmethod(written.append)

    writer: Any = Writer()
    callback = BlockingStreamCallback(writer)
    config: Any = {"callbacks": [callback]}
    model = GenericFakeChatModel(messages=iter([AIMessage(content="one two")]))
    model.invoke("?", config=config)
    answer = AIMessage(
        content="!", usage_metadata=USAGE, response_metadata={"finish_reason": "end"}
    )
    FakeMessagesListChatModel(responses=[answer]).invoke("?", config=config)
    assert written == ["one", " ", "two", "!"]
    assert (callback.finish_reason, callback.usage) == ("end", USAGE)


def test_messages_of_a_graph_hold_calls_of_several_turns_apart() -> None:
    def call(message: str, id: str | None, args: str) -> AIMessageChunk:
        chunk: Any = {"index": 0, "id": id, "name": id and "f", "args": args}
        return AIMessageChunk(content="", id=message, tool_call_chunks=[chunk])

    counted = AIMessageChunk(content="", id="m1", usage_metadata=USAGE)
    graph: Any = [
        (HumanMessage("?"), {}),
        (call("m1", "c1", '{"a"'), {}),
        (call("m1", None, ": 1}"), {}),
        (counted, {}),
        (ToolMessage("one", tool_call_id="c1"), {}),
        (call("m2", "c2", "{}"), {}),
        (counted, {}),
    ]
    source = from_langchain(graph)
    parts: list[Any] = []
    for piece in source:
        grow(parts, piece)
    assert parts == [
        {"type": "tool-call", "id": "c1", "name": "f", "text": '{"a": 1}'},
        {"type": "tool-result", "id": "c1", "output": "one"},
        {"type": "tool-call", "id": "c2", "name": "f", "text": "{}"},
    ]
    assert source.usage == {"input_tokens": 14, "output_tokens": 24, "total_tokens": 38}


def test_langchain_is_loaded_by_its_own_module_only() -> None:
    code = "import sys, json, hanzoai.pubsub.streams; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    names: list[str] = json.loads(loaded.stdout)
    assert [name for name in names if name.startswith(("langchain", "openai", "anthropic"))] == []


def test_a_missing_langchain_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", None)
    monkeypatch.delitem(sys.modules, "hanzoai.pubsub.streams.langchain")
    with pytest.raises(UsageError, match="pip install langchain-core") as caught:
        __import__("hanzoai.pubsub.streams.langchain")
    assert isinstance(caught.value, ImportError)
