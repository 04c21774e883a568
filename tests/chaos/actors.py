"""The clients of a run: SDKs in separate processes, raw readers, and a raw HTTP publisher."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import httpx

from tests.chaos import records
from tests.chaos.networks import HOST, Network
from tests.chaos.readers import SocketReader, StreamReader
from tests.chaos.roamers import Roamer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.peers import Peer
    from tests.chaos.plan import Client
    from tests.chaos.readers import Reconnecting, Whims

Json = dict[str, Any]
OPTIONS: Final[Json] = {
    "open_timeout": 3_000,
    "ping_interval": 1_500,
    "pong_timeout": 1_500,
    "retry": {"base": 50, "cap": 1_000, "stable_after": 2_000},
    "upgrade_after": 4_000,
    "fallback_failures": 2,
}
SUBSCRIBE_WITHIN: Final = 90.0
PUBLISH_WITHIN: Final = 12_000
ANSWER_WITHIN: Final = 20.0
# A timeout that ends just as a connection opens makes httpx forget this connection. On this
# machine, a connection is accepted or refused at once.
REQUEST_WITHIN: Final = httpx.Timeout(5.0, connect=None)
REQUESTS: Final = 60
LOOK_WITHIN: Final = 60.0
AGAIN_AFTER: Final = 0.3
READABLE: Final = {True: ("team.blue.**",), False: ("team.red.**",)}


class Actor(Protocol):
    """One client of a run.

    Args:
        client: The client in the plan.
        token: Bearer token of the client.
        network: Network between the client and its node: the WebSocket, then HTTP.
        history: Records all events.
        now: Returns the seconds since the start of the run.
    """

    client: Client
    network: Network
    end: records.Client
    _token: str
    _history: records.History
    _now: Callable[[], float]
    _order: int

    def __init__(
        self,
        client: Client,
        token: str,
        network: Network,
        history: records.History,
        now: Callable[[], float],
    ) -> None:
        self.client = client
        self.network = network
        self.end = records.Client(client.name, self._transport)
        self._token = token
        self._history = history
        self._now = now
        self._order = 0

    @property
    def _transport(self) -> str:
        return "sse" if "sse" in (self.client.transport, self.client.kind) else "websocket"

    def _subscription(self) -> records.Subscription:
        found = records.Subscription(
            self.client.name, self.client.topics, READABLE[self.client.insider], self._now()
        )
        self._history.subscriptions.append(found)
        return found

    def begin(self, topic: str, size: int, *, final: bool = False) -> records.Publication:
        """Record the start of a publish."""
        self._order += 1
        by = self.client.name
        data = {"by": by, "n": self._order, "pad": "·" * size}
        one = records.Publication(
            id=f"{by}-{self._order}",
            topic=topic,
            by=by,
            user=by,
            order=self._order,
            data=data,
            begun=self._now(),
            allowed=self.client.insider,
            final=final,
            node=self.client.node,
        )
        self._history.publications[one.id] = one
        return one

    def settle(self, one: records.Publication, answer: Json) -> None:
        """Record the outcome of a publish."""
        one.ended = self._now()
        if "gives" in answer:
            one.outcome, one.seq = "acknowledged", answer["gives"].get("seq")
            return
        problem = answer["fails"]
        one.code = problem.get("code") or problem.get("type")
        unsure = problem.get("outcome_unknown", True)
        one.outcome = "unknown" if unsure and one.code != "forbidden" else "refused"

    @abstractmethod
    async def arrive(self) -> None:
        """Connect and subscribe; return when the subscription is acknowledged."""

    async def look(self) -> None:
        """Record the final state of the connection."""
        return

    async def leave(self) -> None:
        """Close the client."""
        return


@runtime_checkable
class Publisher(Protocol):
    """A client that publishes."""

    async def publish(self, one: records.Publication) -> None:
        """Publish, and record the outcome."""


class SdkActor(Actor):
    """A client that uses an SDK."""

    def __init__(self, peer: Peer, *given: Any) -> None:
        super().__init__(*given)
        self._peer = peer

    async def arrive(self) -> None:
        name, (ws, http) = self.client.name, self.network.ports
        self._peer.want(f"{name}.states", self._state)
        options = {
            **OPTIONS,
            "url": f"ws://{HOST}:{ws}/ws",
            "rest_url": f"http://{HOST}:{http}",
            "token": self._token,
            "transport": self.client.transport,
        }
        await self._peer.begin("new", name, options)
        if not self.client.topics:
            return
        found = self._subscription()
        async with asyncio.timeout(SUBSCRIBE_WITHIN):
            for attempt in range(100):
                sub = f"{name}.{attempt}"
                self._peer.want(sub, lambda event: self._receive(found, event))
                found.asked = self._now()
                answer = await self._peer.begin(
                    "subscribe",
                    name,
                    {"sub": sub, "topics": list(self.client.topics), "presence": True},
                )
                if "gives" in answer:
                    found.began = self._now()
                    return
                if answer["fails"].get("code") in {"forbidden", "closed"}:
                    found.ended = str(answer["fails"])
                    return
                await asyncio.sleep(AGAIN_AFTER)

    def _state(self, event: Json) -> None:
        if event["state"]["to"] == "failed":
            self.end.failure = str(event["state"])

    def _receive(self, found: records.Subscription, event: Json) -> None:
        at = self._now()
        match event:
            case {"message": message}:
                sender = (message.get("sender") or {}).get("id")
                found.received.append(
                    records.Message(
                        at,
                        message["topic"],
                        message["id"],
                        message.get("seq"),
                        sender,
                        message.get("data"),
                    )
                )
            case {"gap": gap}:
                found.received.append(
                    records.Gap(
                        at,
                        gap["topic"],
                        gap.get("from"),
                        gap.get("to"),
                        gap.get("missed"),
                        gap["reason"],
                    )
                )
            case {"presence": presence}:
                found.members[presence["topic"]] = [one["user_id"] for one in presence["members"]]
            case {"ended": problem}:
                found.ended = str(problem)
            case _:
                pass

    async def publish(self, one: records.Publication) -> None:
        message = {"type": "chaos", "data": one.data, "id": one.id}
        answer = self._peer.begin(
            "publish",
            self.client.name,
            {"topic": one.topic, "message": message, "timeout": PUBLISH_WITHIN},
        )
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                self.settle(one, await answer)
        except TimeoutError:
            self.settle(one, {"fails": {"code": "no answer of the SDK in its time"}})

    async def look(self) -> None:
        async with asyncio.timeout(LOOK_WITHIN):
            self.end.state = (await self._peer.begin("state", self.client.name, {}))["gives"]
        # An SDK may not report the transport, but its network knows it.
        socket, http = (wire.used for wire in self.network.wires)
        self.end.found = "websocket" if socket else "sse" if http else None


class ReaderActor(Actor):
    """A raw reader.

    Args:
        whims: What it does by itself.
        *given: See `Actor`.
    """

    _task: asyncio.Task[None] | None = None

    def __init__(self, whims: Whims, *given: Any) -> None:
        super().__init__(*given)
        self._whims = whims

    @property
    def _transport(self) -> str:
        return "sse" if self.client.kind == "stream" else "websocket"

    async def arrive(self) -> None:
        kind = StreamReader if self.client.kind == "stream" else SocketReader
        port = self.network.ports[self.client.kind == "stream"]
        found = self._subscription()
        reader = kind(found, self.end, self._token, port, self._now, self._whims)
        await self._run(reader, lambda: found.began is not None)

    async def _run(self, reader: Reconnecting, begun: Callable[[], bool]) -> None:
        self._task = asyncio.get_running_loop().create_task(reader.run())
        async with asyncio.timeout(SUBSCRIBE_WITHIN):
            while not begun():
                if self._task.done():
                    await self._task
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


class RoamerActor(ReaderActor):
    """A raw reader that changes its subscriptions.

    Args:
        topics: All topics of the run.
        *given: See `ReaderActor`.
    """

    def __init__(self, topics: Sequence[str], *given: Any) -> None:
        super().__init__(*given)
        self._roamer = Roamer(
            self.client.topics,
            READABLE[self.client.insider],
            topics,
            self._history,
            *(self.end, self._token, self.network.ports[0], self._now, self._whims),
        )

    async def arrive(self) -> None:
        await self._run(self._roamer, lambda: self.end.state == "connected")

    async def look(self) -> None:
        self._roamer.look()
        if self.end.found is not None:
            self.end.state = "connected" if self._roamer.rests else "roaming"


class HttpActor(Actor):
    """Publishes over raw HTTP, and repeats each message with the same id until it is answered."""

    _turn: asyncio.Lock | None = None

    async def arrive(self) -> None:
        self._turn = asyncio.Lock()
        self.end.state, self.end.found = "connected", self.end.transport

    async def publish(self, one: records.Publication) -> None:
        assert self._turn is not None
        async with self._turn:
            await self._publish(one, self.network.ports[1], REQUESTS)

    async def _publish(self, one: records.Publication, port: int, requests: int) -> None:
        url = f"http://{HOST}:{port}/v1/topics/{one.topic}/messages"
        body = {"type": "chaos", "data": one.data, "id": one.id}
        headers = {"Authorization": f"Bearer {self._token}"}
        code = ""
        for _ in range(requests):
            with contextlib.suppress(httpx.HTTPError):
                async with httpx.AsyncClient(trust_env=False, timeout=REQUEST_WITHIN) as http:
                    answer = await http.post(url, json=body, headers=headers)
                if answer.status_code in {200, 201}:
                    self.settle(one, {"gives": answer.json()})
                    return
                code = str(answer.json().get("code"))
            await asyncio.sleep(AGAIN_AFTER)
        self.settle(one, {"fails": {"code": code, "outcome_unknown": True}})

    async def publish_at(self, one: records.Publication, port: int) -> None:
        """Publish to this node directly, without a network in between."""
        await self._publish(one, port, REQUESTS)
