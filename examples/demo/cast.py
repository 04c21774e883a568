"""Who takes part: the service that speaks, those who read, and those who come and go."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from examples.chat.server import SESSION, Server
from examples.demo.story import Word, rhythm
from hanzoai.pubsub import Gap, Message, PubSubClient
from hanzoai.pubsub.values import PresenceChange, StateChange, Token, TokenContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.demo.ledger import Reading
    from examples.demo.page import Page
    from examples.demo.stage import Stage
    from hanzoai.pubsub import Subscription

TOPIC = f"chat.session.{SESSION}"
END = "message.complete"
FINALE = 0.92
"""From this share on the service waits until all that was to go wrong has gone wrong."""

AGAIN = 8.0
"""Seconds after which a cut that no one came back from is made again."""


@dataclass(slots=True)
class Tokens:
    """Gives the reader its tokens: two that end during the stream, then one that does not.

    Attributes:
        lives: Seconds of the first tokens, in order.
        notice: Seconds before the end of a token at which the server asks for another.
    """

    server: Server
    stage: Stage
    lives: Sequence[float]
    notice: float
    _present: Token | None = None

    async def get(self, context: TokenContext) -> Token:
        """The present token for a new connection, another one when the server asks for it."""
        reading = self.stage.reader
        if context.reason == "expiring":
            reading.rotations += 1
            self.stage.tell("rotated", f"new token at word {len(reading.seen):,}")
        elif self._present is not None and context.reason == "connect" and not self._ends_soon():
            return self._present
        life = 3600.0
        if reading.rotations < len(self.lives):
            first = context.reason == "expiring" or self._present is None
            life = self.lives[reading.rotations] if first else self.notice + 0.5
        expires_at = round((time.time() + life) * 1000)
        self._present = Token(self.server.token("reader", ttl=life), expires_at)
        return self._present

    def _ends_soon(self) -> bool:
        """Whether the server would ask for another before the connection has settled."""
        ends = self._present.expires_at if self._present else None
        return ends is not None and ends / 1000 - time.time() < self.notice + 0.2


@dataclass(slots=True)
class Reader:
    """The reader in the middle of it: asyncio over a WebSocket."""

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
            ps.subscribe(TOPIC, on_presence=self._presence) as subscription,
        ):
            self.subscribed.set()
            await follow(self.stage, self.stage.reader, subscription)

    def _state(self, change: StateChange) -> None:
        self.stage.state = change.to
        if change.to == "connected":
            if self.stage.connected_at:
                self.stage.reader.reconnects += 1
                missed = len(self.stage.ledger.index_of) - len(self.stage.reader.seen)
                self.stage.tell("back", f"back, {missed} words to replay")
            self.stage.connected_at = time.perf_counter()
        elif change.from_ == "connected" and change.to in ("reconnecting", "suspended"):
            self.stage.tell("cut", f"cut at word {len(self.stage.reader.seen):,}")

    def _presence(self, change: PresenceChange) -> None:
        self.stage.members = [(m.name, m.status or "reading") for m in change.members]


async def follow(stage: Stage, reading: Reading, subscription: Subscription) -> None:
    """Note every word and every gap, to the end of the stream."""
    async for event in subscription.events():
        if isinstance(event, Gap):
            reading.gaps += 1
            stage.tell("loss", f"{reading.name}: {event.missed} words lost ({event.reason})")
        elif isinstance(event, Message) and event.type == END:
            reading.finished = True
            return
        elif isinstance(event, Message) and event.type == "token":
            take(stage, reading, event)


def take(stage: Stage, reading: Reading, message: Message) -> None:
    """Note a word."""
    now = time.perf_counter()
    index, content = int(message.data["index"]), str(message.data["content"])
    sent = stage.ledger.sent_at.get(index, now)
    late = reading is stage.latecomer
    reading.note(message.id, index, content, None if late else now - sent)
    if reading is stage.reader:
        stage.show(index, content, now)


async def observe(server: Server, stage: Stage, ready: asyncio.Event) -> None:
    """Read the same stream as server-sent events."""
    token = server.token("observer")
    client = PubSubClient(server.ws, token, rest_url=server.http, transport="sse")
    async with client as ps, ps.subscribe(TOPIC) as subscription:
        ready.set()
        await follow(stage, stage.observer, subscription)


async def come_late(server: Server, stage: Stage) -> None:
    """Join when all is said, and replay it from history."""
    stage.tell("people", "a latecomer asks for all of it")
    client = PubSubClient(server.ws, server.token("late"), rest_url=server.http)
    async with client as ps, ps.subscribe(TOPIC, history=stage.total + 100) as subscription:
        await follow(stage, stage.latecomer, subscription)
    stage.tell("people", f"{len(stage.latecomer.seen):,} words replayed")


async def speak(
    server: Server,
    stage: Stage,
    words: Sequence[Word],
    *,
    rate: float,
    seed: int,
    finale: Callable[[], bool],
) -> None:
    """Publish the words over REST, one by one, at the speed of a model.

    Args:
        server: Where.
        stage: The show.
        words: What.
        rate: Words a second.
        seed: Of the rhythm.
        finale: Whether the last words may be said.
    """
    token = server.token("llm-gateway", service=True)
    async with PubSubClient(server.ws, token, rest_url=server.http, transport="sse") as ps:
        pauses, due = rhythm(seed, rate), time.perf_counter()
        for word in words:
            if stage.progress >= FINALE and not finale():
                await stage.until(finale)
                due = time.perf_counter()
            stage.ledger.sending(word.index, word.content, time.perf_counter())
            data = {"content": word.content, "index": word.index}
            published = await ps.publish(TOPIC, {"type": "token", "data": data}, via="rest")
            stage.ledger.published(published.id, word.index)
            stage.pace.append(time.perf_counter())
            stage.go_on()
            due += next(pauses)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await ps.publish(TOPIC, {"type": END, "data": {"words": len(words)}}, via="rest")
    stage.tell("stream", f"{len(words):,} words published")


async def visit(server: Server, stage: Stage, name: str, *, come: float, leave: float) -> None:
    """Join, type now and then, and leave; at these shares of the text."""
    await stage.reach(come)
    async with PubSubClient(server.ws, server.token(name), rest_url=server.http) as ps:
        async with ps.subscribe(TOPIC, on_message=lambda _message: None):
            stage.tell("people", f"{name} joined")
            for share, status in ((0.2, "typing"), (0.5, "reading"), (0.75, "typing")):
                await stage.reach(come + (leave - come) * share)
                await ps.update_presence(TOPIC, {"status": status})
                if status == "typing":
                    stage.tell("people", f"{name} is typing")
            await stage.reach(leave)
        stage.tell("people", f"{name} left")


async def sabotage(
    server: Server, stage: Stage, reader: Reader, shares: Sequence[float], *, lose: bool
) -> None:
    """Cut the reader's connection at these shares of the text.

    Args:
        server: Where its fault door is.
        stage: The show.
        reader: Whom to cut.
        shares: When.
        lose: Also empty the history while the reader is away, so that words are really lost.
    """
    for number, share in enumerate(shares):
        await stage.reach(share)
        seen = len(stage.reader.seen)
        await stage.until(partial(_may_be_cut, stage, seen))
        back = stage.reader.reconnects + 1
        if lose and number == 0:
            await server.fault("refuse")
        await server.fault("drop", user="reader")
        if lose and number == 0:
            await stage.reach(share + 0.03)
            await server.fault("evict", topic=TOPIC)
            await server.fault("refuse", on=False)
        while True:
            try:
                async with asyncio.timeout(AGAIN):
                    await stage.until(partial(_came_back, stage.reader, back))
                break
            except TimeoutError:  # no one was there: the reader was between two connections
                await server.fault("drop", user="reader")


async def cut_pages(page: Page, stage: Stage, shares: Sequence[float]) -> None:
    """Cut the connections of browsers at these shares of the text."""
    for share in shares:
        await stage.reach(share)
        await page.cut()


def _came_back(reading: Reading, times: int) -> bool:
    return reading.reconnects >= times


def _may_be_cut(stage: Stage, seen: int) -> bool:
    """The reader reads on; or it cannot, for the last words wait until it has been cut."""
    return len(stage.reader.seen) > seen or stage.progress >= FINALE
