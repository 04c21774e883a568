"""Plays a program on one SDK, and compares what two SDKs did.

No step begins before everything that the last one caused has arrived. After each step, every
connected client receives a message of the test on a topic of its own: what the server sent before
came before it, because a connection keeps the order.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from pubsub_server.auth.identity import Identity
from pubsub_server.shared.requests import Draft
from tests.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.conformance.peer_process import PeerProcess
    from tests.conformance.wire import Wire

Json: TypeAlias = dict[str, Any]
FENCE: Final = "org.acme.fence"
"""No pattern of a program matches this topic."""
SHORT: Final = 6.0
"""Maximum seconds of a call; an answer that arrives later belongs to the call all the same."""
RESTING: Final = frozenset({"connected", "suspended", "closed", "failed"})
OPTIONS: Final = {"operation_timeout": 3_000, "close_timeout": 1_000}
UNLIKE: Final = frozenset(
    {
        *("ts", "timestamp", "retry_in", "retry_after", "joined_at", "last_seen", "client_id"),
        *("created", "updated_at", "last_activity", "last_message_at", "queued_bytes", "writer"),
        *("message", "remedy", "reason", "ids"),
    }
)
"""Names of values that differ from run to run, and of texts, whose words differ by language."""


@dataclass
class Log:
    """What a program did.

    Attributes:
        answers: The answers to the calls of each step; None for one that never came.
        streams: The events by subscription, topic and kind.
        trouble: Errors that no call reported.
    """

    answers: list[Any] = field(default_factory=list)
    streams: dict[str, list[Any]] = field(default_factory=dict)
    trouble: list[Any] = field(default_factory=list)


@dataclass
class _Client:
    """A client of the program, as its events show it."""

    user: str
    state: str = "initialized"
    changes: int = 0
    asked: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reach(self, changes: int, states: frozenset[str]) -> None:
        """Wait for this number of changes, and for one of these states if there are any."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: self.changes >= changes and (not states or self.state in states)
            )


class Play:
    """One run of a program on one SDK."""

    def __init__(self, peer: PeerProcess, folder: Path) -> None:
        self._world = World({"wire": True}, peer, folder)
        self._peer = peer
        self._clients: dict[str, _Client] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._fences = count()
        self._first: Json = {"id": "nope", "seq": 1}
        self._missing: set[str] = set()
        self._taking: dict[str, asyncio.Future[Json]] = {}

    async def __aenter__(self) -> Self:
        await self._world.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._watching:
            task.cancel()
        await self._world.__aexit__(kind, error, trace)

    async def run(self, steps: Sequence[Json]) -> Log:
        """Perform every step, close the clients, and return what happened."""
        begun = [await self._perform(step) for step in steps]
        streams = self._peer.streams()
        trouble = await self._peer.reset()
        log = Log([[_answer(answer) for answer in answers] for answers in begun], trouble=trouble)
        for name, events in streams.items():
            if not re.search(r"\.(states|tokens)$|^fence", name):
                for event in filter(_is_compared, events):
                    log.streams.setdefault(_key(name, event), []).append(masked(event))
        for name, events in log.streams.items():
            if name.endswith(" presence"):
                log.streams[name] = _presence(events)
        return log

    async def _perform(self, step: Json) -> Sequence[asyncio.Future[Json]]:
        """Perform a step; return the answers to its calls, which may wait for later steps."""
        begun: list[asyncio.Future[Json]] = []
        match step:
            case {"client": name, "as": user, "options": options}:
                begun = [await self._new(name, user, {**OPTIONS, **options})]
            case {"do": _}:
                begun = self._begin(step)
                await self._answered(begun, [step])
            case {"rotate": name}:
                await self._rotate(self._clients[name])
            case {"outage": steps}:
                lost = await self._on_line("websocket")
                self._wire.block("refuse")
                self._wire.cut()
                await self._settle(lost, frozenset())
                for one in steps:
                    begun += self._begin(one)
                    # Its calls, which may be several, have begun before those of the next step.
                    await self._peer.ask("state", next(iter(self._clients)))
                self._wire.block(None)
                await self._settle(lost)
                await self._answered(begun, steps)
            case {"server": "restart"}:
                lost = await self._on_line("websocket", "sse")
                await self._world.stop()
                await self._world.start()
                await self._settle(lost)
            case {"wire": act, **given}:
                lost = await self._on_line("websocket")
                if act == "close":
                    await self._wire.close(given["code"])
                else:
                    self._wire.cut()
                await self._settle(lost)
            case _:
                raise AssertionError(step)
        await self._fence()
        return begun

    def _begin(self, step: Json) -> list[asyncio.Future[Json]]:
        do, by = step["do"], step["by"]
        if by in self._missing:
            return []
        if do == "take" and by in self._taking and not self._taking[by].done():
            return []  # of two that wait, either may take the next message
        begun = self._peer.begin(do, by, self._world.fill(self._filled(step["with"])))
        if do == "take":
            self._taking[by] = begun
        return [begun]

    async def _answered(self, begun: Sequence[asyncio.Future[Json]], steps: Sequence[Json]) -> None:
        """Wait for the answers, except for messages, which may come later or never."""
        waiting = set(begun) - set(self._taking.values())
        if waiting:
            await asyncio.wait(waiting, timeout=SHORT)
        if len(begun) == len(steps) == 1:
            self._remember(steps[0]["do"], steps[0]["with"], begun[0])

    async def _new(self, name: str, user: str, options: Json) -> asyncio.Future[Json]:
        if options.get("get_token") == "ask":
            options["refresh_margin"] = 1_000
        given = self._world.options(user, self._world.fill(options), direct=False)
        watched = self._clients[name] = _Client(user)
        self._watch(self._states(name, watched))
        self._watch(self._tokens(name, watched))
        begun = self._peer.begin("new", name, given)
        await asyncio.wait([begun], timeout=SHORT)
        return begun

    def _watch(self, watching: Coroutine[Any, Any, None]) -> None:
        self._watching.add(asyncio.create_task(watching))

    async def _states(self, name: str, client: _Client) -> None:
        while client is self._clients[name]:
            state = (await self._peer.stream(f"{name}.states").take())["state"]
            async with client.changed:
                client.state, client.changes = state["to"], client.changes + 1
                client.changed.notify_all()

    async def _tokens(self, name: str, client: _Client) -> None:
        """Give a token that expires soon at each call."""
        while client is self._clients[name]:
            call = (await self._peer.stream(f"{name}.tokens").take())["asked"]["call"]
            token = self._world.token(client.user, ttl=3)
            self._peer.begin("give_token", name, {"call": call, "token": token})
            async with client.changed:
                client.asked += 1
                client.changed.notify_all()

    def _remember(self, do: str, given: Json, begun: asyncio.Future[Json]) -> None:
        """Keep the first message of a history, and the names of what could not be opened."""
        answer: Json = begun.result() if begun.done() else {"fails": None}
        if do in ("subscribe", "respond"):
            (self._missing.add if "fails" in answer else self._missing.discard)(given["sub"])
        if do == "history" and answer.get("gives"):
            self._first = answer["gives"][0]

    def _filled(self, given: Json) -> Json:
        return {
            name: self._first[value["$first"]]
            if isinstance(value, dict) and "$first" in value
            else value
            for name, value in given.items()
        }

    async def _rotate(self, client: _Client) -> None:
        """Wait until the client asked for its next token."""
        before = client.asked
        if client.state == "connected":
            with suppress(TimeoutError):
                async with asyncio.timeout(SHORT), client.changed:
                    await client.changed.wait_for(lambda: client.asked > before)

    async def _on_line(self, *transports: str) -> list[tuple[_Client, int]]:
        """The connected clients, and the number of changes after which they are not any more."""
        return [
            (client, client.changes + 1)
            for name, client in self._clients.items()
            if client.state == "connected" and await self._transport(name) in transports
        ]

    async def _settle(
        self, lost: Sequence[tuple[_Client, int]], states: frozenset[str] = RESTING
    ) -> None:
        """Wait until these clients changed their state, to one of these if there are any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHORT):
                await asyncio.gather(*(one.reach(changes, states) for one, changes in lost))

    async def _transport(self, name: str) -> object:
        return (await self._peer.ask("info", name))["gives"]["transport"]

    @property
    def _wire(self) -> Wire:
        assert self._world.wire is not None
        return self._world.wire

    async def _fence(self) -> None:
        """Wait until everything sent to the connected clients has arrived in the program."""
        name = f"fence{next(self._fences)}"
        connected = [one for one, client in self._clients.items() if client.state == "connected"]
        given = {"topics": FENCE, "mode": "events"}
        begun = [
            self._peer.begin("subscribe", one, {**given, "sub": f"{name}.{one}"})
            for one in connected
        ]
        if not begun:
            return
        await asyncio.wait(begun, timeout=SHORT)
        assert self._world.server is not None
        sender = Identity("fence", "admin")
        await self._world.server.hub.publish(sender, [Draft(FENCE, name, b"1", None, None, None)])
        joined = [
            f"{name}.{one}"
            for one, answer in zip(connected, begun, strict=True)
            if answer.done() and "gives" in answer.result()
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(SHORT):
                await asyncio.gather(*(self._fenced(one, name) for one in joined))
        await asyncio.gather(*(self._peer.ask("unsubscribe", one) for one in joined))

    async def _fenced(self, stream: str, name: str) -> None:
        while True:
            event = await self._peer.stream(stream).take()
            if "ended" in event or event.get("message", {}).get("type") == name:
                return


def _answer(begun: asyncio.Future[Json]) -> Any:
    if not begun.done() or begun.cancelled() or begun.exception():
        return None
    return masked({name: value for name, value in begun.result().items() if name != "id"})


def _is_compared(event: Json) -> bool:
    """Whether it depends on the program alone.

    How often a connection fails, and how deltas of a stream are joined, depends on the time.
    """
    if "error" in event:
        return bool(event["error"]["type"] != "ConnectionFailed")
    return event.get("event") != "delta" and not _is_brief(event.get("message"))


def _member(value: Json) -> str:
    return str(value["user_id"])


def _is_brief(message: Any) -> bool:
    """Whether it is a request or a reply, which the server forgets after a second."""
    return isinstance(message, dict) and message.get("ttl") == 1


def _presence(events: Sequence[Json]) -> list[str]:
    """The members at the end: which changes they came by depends on when each connects again."""
    return sorted(one["user_id"] for one in events[-1]["presence"]["members"])


def _key(name: str, event: Json) -> str:
    """Events of different topics, and of presence, have no order between them."""
    kind, content = next(iter(event.items()))
    topic = content.get("topic") if isinstance(content, dict) else None
    kind = kind if kind in ("presence", "request") else ""
    return str(masked(f"{name} {topic or ''} {kind}".rstrip()))


def masked(value: Any, key: str = "") -> Any:
    """Replace what differs from run to run, or only by the language."""
    match value:
        case dict():
            return {name: masked(item, name) for name, item in value.items()}
        case list():
            found = [masked(item, key) for item in value if not _is_brief(item)]
            members = all(isinstance(item, dict) and "joined_at" in item for item in found)
            return sorted(found, key=_member) if members else found
        case str() if key in UNLIKE:
            return "#"
        case int() | float() if key in UNLIKE:
            return "#"
        case bool():
            return value
        case int() if value > 1e12 and (
            key in ("seq", "position", "from", "to") or key.startswith("demo.")
        ):
            return f"+{value % 1000}"
        case int() | float():
            return (
                int(value)
                if float(value).is_integer() and abs(value) < 2**53
                else repr(float(value))
            )
        case str():
            value = re.sub(r"(?<![0-9A-Za-z])(msg|st|c|cl|client)_[0-9A-Za-z]{20,}", r"\1_#", value)
            value = re.sub(r"127\.0\.0\.1:\d+", "HOST", value)
            value = re.sub(r"replies\.[0-9a-z]{16}\b", "replies.#", value)
            return "Error" if key == "type" and value in ("RuntimeError", "KeyError") else value
        case _:
            return value


def differences(one: Log, other: Log, steps: Sequence[Json]) -> list[str]:
    """Return the differences, one per line."""
    found = [
        f"step {n} {_short(step)}: {line}"
        for n, (step, a, b) in enumerate(zip(steps, one.answers, other.answers, strict=True))
        for line in _differ(a, b)
    ]
    for name in sorted({*one.streams, *other.streams}):
        ours, theirs = one.streams.get(name, []), other.streams.get(name, [])
        for n, (a, b) in enumerate(zip_longest(ours, theirs)):
            if lines := list(_differ(a, b)):
                found.append(f"{name}, event {n} of {len(ours)} and {len(theirs)}: {lines}")
                break
    return [*found, *(f"trouble: {_short(one)}" for one in (*one.trouble, *other.trouble))]


def _differ(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _differ(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for n, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differ(a, b, f"{path}[{n}]")
    elif one != other or type(one) is not type(other):
        yield f"{path or 'it'}: {_short(one)} | {_short(other)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
