"""The start of the demonstration: an answer in the chat survives the loss of its writer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from examples.chat.topics import ROOM, SCRIBE, answer_topic
from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import stream_reader

if TYPE_CHECKING:
    from examples.chat.server import Server
    from examples.chat.site import Site
    from examples.demo.stage import Stage
    from hanzoai.pubsub.streams import StreamReader

QUESTION: Final = "Why did the relay make the post fast?"
WORDS: Final = 30
"""Words of the answer before its writer is killed, and between that and the reader's request."""
LIMIT: Final = 60.0
"""Seconds that the opening may take."""


async def play(server: Server, site: Site, stage: Stage) -> list[str]:
    """Ask a question, kill the writer during the answer, and steer the next writer.

    Returns:
        What went wrong; empty if both readers have the same answer.
    """
    ana = PubSubClient(server.ws, server.token("ana"), rest_url=server.http)
    ben = PubSubClient(server.ws, server.token("ben"), rest_url=server.http)
    try:
        async with asyncio.timeout(LIMIT), ana, ben:
            stage.report("people", f"ana asks: {QUESTION}")
            asked = await ana.publish(ROOM, {"type": "question", "data": {"text": QUESTION}})
            topic = answer_topic(asked.id)
            async with (
                stream_reader(ana, topic, id=asked.id, sender=SCRIBE) as first,
                stream_reader(ben, topic, id=asked.id, sender=SCRIBE) as second,
            ):
                await _break(site, stage, second)
                ends = [await reader.final() for reader in (first, second)]
    except TimeoutError:
        return [f"the chat did not finish its answer within {LIMIT:.0f} s"]
    texts = [end.text for end in ends]
    if texts[0] != texts[1]:
        return ["the readers of the chat ended with different texts"]
    if site.writer.started < 2:
        return ["no other process took over the answer in the chat"]
    stage.report("stream", f"both readers have the same {len(texts[0].split())} words")
    return []


async def _break(site: Site, stage: Stage, reader: StreamReader) -> None:
    """Kill the writer, and steer the writer that takes over."""
    killed_at = 0
    async for _event in reader:
        words = len(reader.text.split())
        if not killed_at and words >= WORDS:
            killed_at = words
            stage.report("cut", f"process {site.writer.kill()} is killed at word {words}")
        elif killed_at and words >= killed_at + WORDS:
            stage.report("back", "another process continues the answer")
            await reader.steer("shorter")
            stage.report("people", "ben asks for a shorter answer")
            return
