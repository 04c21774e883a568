"""The participants: the service that writes, the readers, and the users who join and leave."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from examples.chat.server import SESSION, Server
from examples.demo.story import Word, rhythm
from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import Delta, Done, Gap, Snapshot, stream_reader, stream_writer
from hanzoai.pubsub.values import Message, PresenceChange, StateChange, Token, TokenContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.demo.ledger import Reading
    from examples.demo.page import Page
    from examples.demo.stage import Stage
    from hanzoai.pubsub.streams import StreamReader

TOPIC = f"chat.session.{SESSION}"
ANSWER = "the-text"
"""Id of the stream."""
FINALE = 0.92
"""Share of the text after which the service waits for the remaining cuts and rotations."""

SHORT = 2.0
"""Lifetime in seconds of a token to renew immediately. With less left, a token isn't reused."""

AGAIN = 8.0
"""Seconds to wait for a reconnection before a cut is repeated."""


@dataclass(slots=True)
class Tokens:
    """Provides the reader's tokens: two that expire during the stream, then one that does not.

    Attributes:
        lives: Lifetimes of the first tokens in seconds, in order. The server asks for the next
            token after half of the lifetime.
    """

    server: Server
    stage: Stage
    lives: Sequence[float]
    _present: Token | None = None

    async def get(self, context: TokenContext) -> Token:
        """Return the current token for a new connection, or a new one if the server asks."""
        reading = self.stage.reader
        if context.reason == "expiring":
            reading.rotations += 1
            self.stage.report("rotated", f"new token at word {reading.count:,}")
        elif self._present is not None and context.reason == "connect" and not self._ends_soon():
            return self._present
        life = 3600.0
        if reading.rotations < len(self.lives):
            first = context.reason == "expiring" or self._present is None
            life = self.lives[reading.rotations] if first else SHORT
        self._present = Token(self.server.token("reader", ttl=life), time.time() + life)
        return self._present

    def _ends_soon(self) -> bool:
        """Whether the server would ask for a new token while the client is still connecting."""
        ends = self._present.expires_ms if self._present else None
        return ends is not None and ends / 1000 - time.time() < SHORT


@dataclass(slots=True)
class Reader:
    """The reader whose connection is cut: asyncio over a WebSocket."""

    server: Server
    stage: Stage
    tokens: Tokens
    client: PubSubClient = field(init=False)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.client = PubSubClient(
            self.server.ws,
            rest_url=self.server.http,
            get_token=self.tokens.get,
            transport="websocket",
            on_state=self._state,
            refresh_margin=0.2,
        )

    async def read(self) -> None:
        """Read until the end of the stream."""
        async with (
            self.client as ps,
            ps.subscribe(TOPIC, on_presence=self._presence, on_message=self._measure),
            stream_reader(ps, TOPIC, id=ANSWER) as reader,
        ):
            self.subscribed.set()
            await follow(self.stage, self.stage.reader, reader)

    def _state(self, change: StateChange) -> None:
        self.stage.state = change.to
        if change.to == "connected":
            if self.stage.connected_at:
                self.stage.reader.reconnects += 1
                missed = len(self.stage.ledger.words) - self.stage.reader.count
                self.stage.report("back", f"back, {missed} words to replay")
            self.stage.connected_at = time.perf_counter()
        elif change.from_ == "connected" and change.to in ("reconnecting", "suspended"):
            self.stage.report("cut", f"cut at word {self.stage.reader.count:,}")

    def _measure(self, message: Message) -> None:
        measure(self.stage, self.stage.reader, message)

    def _presence(self, change: PresenceChange) -> None:
        self.stage.members = [(m.name, m.status or "reading") for m in change.members]


async def follow(stage: Stage, reading: Reading, reader: StreamReader) -> None:
    """Show each event until the end of the stream."""
    async for event in reader:
        if isinstance(event, Delta):
            take(stage, reading, reading.text + event.text)
        elif isinstance(event, Snapshot):
            take(stage, reading, event.text)
        elif isinstance(event, Gap):
            reading.gaps += 1
            missing = f"tokens {event.first} to {event.last} are missing"
            stage.report("loss", f"{reading.name}: {missing} until the next snapshot")
        elif isinstance(event, Done):
            take(stage, reading, event.text)
            reading.finished = True


def measure(stage: Stage, reading: Reading, message: Message) -> None:
    """Record how long a message took. Events of a stream reader have no timestamp."""
    if message.type != "token":
        return
    seconds = max(0.0, time.time() - message.timestamp / 1000)
    reading.latencies.append(seconds)
    if reading is stage.reader:
        stage.lag.append((stage.elapsed, seconds))


def take(stage: Stage, reading: Reading, text: str) -> None:
    """Record the text that a reader shows now."""
    new = stage.ledger.take(reading, text)
    if reading is stage.reader:
        stage.show(new)


async def observe(server: Server, stage: Stage, ready: asyncio.Event) -> None:
    """Read the same stream as server-sent events."""
    token = server.token("observer")
    client = PubSubClient(server.ws, token, rest_url=server.http, transport="sse")
    async with (
        client as ps,
        ps.subscribe(TOPIC, on_message=partial(measure, stage, stage.observer)),
        stream_reader(ps, TOPIC, id=ANSWER) as reader,
    ):
        ready.set()
        await follow(stage, stage.observer, reader)


async def come_late(server: Server, stage: Stage) -> None:
    """Wait for the end of the stream, which contains the whole text."""
    stage.report("people", "a latecomer reads the whole text")
    client = PubSubClient(server.ws, server.token("late"), rest_url=server.http)
    async with client as ps, stream_reader(ps, TOPIC, id=ANSWER) as reader:
        await follow(stage, stage.latecomer, reader)
    stage.report("people", f"{stage.latecomer.count:,} words from history")


async def speak(
    server: Server,
    stage: Stage,
    words: Sequence[Word],
    *,
    rate: float,
    seed: int,
    finale: Callable[[], bool],
) -> None:
    """Write the words one by one, at the speed of a model.

    Args:
        server: The server.
        stage: The state of the demonstration.
        words: The words to write.
        rate: Words per second.
        seed: Seed of the pauses between words.
        finale: Whether the last words may be written.
    """
    token = server.token("llm-gateway", service=True)
    async with (
        PubSubClient(server.ws, token, rest_url=server.http) as ps,
        stream_writer(ps, TOPIC, id=ANSWER, meta={"words": len(words)}, listen=False) as writer,
    ):
        pauses, due = rhythm(seed, rate), time.perf_counter()
        for word in words:
            if stage.progress >= FINALE and not finale():
                await stage.until(finale)
                due = time.perf_counter()
            stage.ledger.write(word.content, time.perf_counter())
            await writer.write(word.content)
            stage.pace.append(time.perf_counter())
            stage.go_on()
            due += next(pauses)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await writer.complete()
        frames = f"{writer.stats['tokens']} tokens and {writer.stats['snapshots']} snapshots"
        stage.report("stream", f"{len(words):,} words in {frames}")


async def visit(server: Server, stage: Stage, name: str, *, come: float, leave: float) -> None:
    """Join, type now and then, and leave, at these shares of the text."""
    await stage.reach(come)
    async with PubSubClient(server.ws, server.token(name), rest_url=server.http) as ps:
        async with ps.subscribe(TOPIC, on_message=lambda _message: None):
            stage.report("people", f"{name} joined")
            for share, status in ((0.2, "typing"), (0.5, "reading"), (0.75, "typing")):
                await stage.reach(come + (leave - come) * share)
                await ps.update_presence(TOPIC, {"status": status})
                if status == "typing":
                    stage.report("people", f"{name} is typing")
            await stage.reach(leave)
        stage.report("people", f"{name} left")


async def sabotage(
    server: Server, stage: Stage, reader: Reader, shares: Sequence[float], *, lose: bool
) -> None:
    """Cut the reader's connection at these shares of the text.

    Args:
        server: The server, which injects the faults.
        stage: The state of the demonstration.
        reader: The reader to cut.
        shares: Shares of the text at which to cut.
        lose: Also empty the history while the reader is disconnected.
    """
    for number, share in enumerate(shares):
        await stage.reach(share)
        seen = stage.reader.count
        await stage.until(partial(_may_be_cut, stage, seen))
        back = stage.reader.reconnects + 1
        if lose and number == 0:
            await server.fault("refuse")
        await server.fault("drop", user="reader")
        if lose and number == 0:
            await stage.reach(share + 0.03)
            await server.fault("evict", topic=TOPIC)
            stage.report("loss", "the history is emptied while the reader is disconnected")
            await server.fault("refuse", on=False)
        while True:
            try:
                async with asyncio.timeout(AGAIN):
                    await stage.until(partial(_came_back, stage.reader, back))
                break
            except TimeoutError:  # The reader had no connection that could be cut.
                await server.fault("drop", user="reader")


async def cut_pages(page: Page, stage: Stage, shares: Sequence[float]) -> None:
    """Cut the connections of browsers at these shares of the text."""
    for share in shares:
        await stage.reach(share)
        await page.cut()


def _came_back(reading: Reading, times: int) -> bool:
    return reading.reconnects >= times


def _may_be_cut(stage: Stage, seen: int) -> bool:
    """Whether the reader has received more words, or the last words wait for this cut."""
    return stage.reader.count > seen or stage.progress >= FINALE
