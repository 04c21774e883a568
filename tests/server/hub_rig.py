"""A hub in virtual time, with clients that record frames in lists."""

from __future__ import annotations

import asyncio
from sys import maxsize
from typing import TYPE_CHECKING, Any

import orjson
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from pubsub_server.auth.identity import Identity
from pubsub_server.backplanes.memory import open_memory
from pubsub_server.errors import ServiceError
from pubsub_server.hub.hub import Hub
from pubsub_server.listeners.http.encoder import StreamEncoder
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.settings.config import Settings
from pubsub_server.shared.limits import ConnectionLimiter, RateLimiter
from pubsub_server.shared.turns import SECONDS
from pubsub_server.shared.wall_clock import never_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.backplane import Backplane
    from pubsub_server.shared.encoder import Encoder

STREAM = StreamEncoder(lambda: maxsize)

START_MS = 1_700_000_000_000
ANNA = Identity(user_id="anna", kind="admin")


class People:
    """A token is `name`, `name:kind` or `name:kind:expires_ms`; `bad` is rejected."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None

    async def authenticate(self, token: str) -> Identity:
        if self.gate is not None:
            await self.gate.wait()
        token = token.removeprefix("Bearer ")
        if token == "bad":
            raise ServiceError("token_invalid", "the signature does not hold")
        name, _, rest = token.partition(":")
        kind, _, expires = rest.partition(":")
        return Identity(
            user_id=name,
            kind=kind or "user",  # type: ignore[arg-type]
            name=name.title(),
            expires_at=int(expires) if expires else None,
        )


class Rules:
    """Allows everything that a test does not forbid."""

    def __init__(self) -> None:
        self.unreadable: Callable[[Identity, str], bool] = lambda identity, topic: False
        self.unwritable: Callable[[Identity, str], bool] = lambda identity, topic: False
        self.denied_patterns: set[str] = set()
        self.asked = 0

    def may_subscribe(self, identity: Identity, topic: str) -> bool:
        self.asked += 1
        return not self.unreadable(identity, topic)

    def may_subscribe_pattern(self, identity: Identity, pattern: str) -> bool:
        if "*" not in pattern:
            return self.may_subscribe(identity, pattern)
        return pattern not in self.denied_patterns

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return not self.unwritable(identity, topic)

    def may_administer(self, identity: Identity) -> bool:
        return identity.kind == "admin"


class FakeSink:
    """Records the actions of the hub on a connection."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.writes: list[bytes] = []
        self.ended: tuple[int, str] | None = None
        self.aborted = False
        self.freezes: list[bool] = []
        self.holds: list[bool] = []

    caller = None

    def write(self, data: bytes) -> None:
        assert self.ended is None, "nothing is written after the close"
        self.writes.append(data)

    def buffered(self) -> int:
        return 0

    def close(self, code: int, reason: str) -> None:
        self.ended = (code, reason)

    def hold(self, on: bool) -> None:
        self.holds.append(on)

    def abort(self) -> None:
        self.aborted = True

    def freeze(self, frozen: bool) -> None:
        self.freezes.append(frozen)


class Peer:
    """One client of the hub."""

    def __init__(self, rig: Rig, encoder: Encoder) -> None:
        self.rig = rig
        self.sink = FakeSink(encoder)
        self.connection = rig.hub.open(self.sink, encoder)
        self._parser = Protocol(CLIENT, max_size=None)
        self.pings = 0

    def send(self, data: str | bytes) -> None:
        self.rig.hub.receive(self.connection, data)

    def say(self, kind: str, **fields: Any) -> None:
        self.send(orjson.dumps({"type": kind, **fields}))

    def read(self) -> list[dict[str, Any]]:
        """Frames since the last call."""
        self.rig.hub.core.delivery.flush()
        data = b"".join(self.sink.writes)
        self.sink.writes.clear()
        if self.sink.encoder is STREAM:
            return events(data)
        self._parser.receive_data(data)
        frames: list[dict[str, Any]] = []
        for event in self._parser.events_received():
            assert isinstance(event, Frame)
            if event.opcode is Opcode.PING:
                self.pings += 1
            else:
                frames.append(orjson.loads(bytes(event.data)))
        return frames

    def read_one(self, kind: str) -> dict[str, Any]:
        """Return the only new frame."""
        (frame,) = self.read()
        assert frame["type"] == kind, frame
        return frame

    def messages(self) -> list[dict[str, Any]]:
        """Return the new application envelopes, without presence."""
        found = [f["message"] for f in self.read() if f["type"] == "message"]
        return [m for m in found if not m["type"].startswith("presence.")]

    def presence(self) -> list[tuple[str, str]]:
        """Return type and user of the new presence messages."""
        found = [f["message"] for f in self.read() if f["type"] == "message"]
        return [(m["type"], m["data"]["user_id"]) for m in found]

    def subscribe(self, *topics: str, **fields: Any) -> dict[str, Any]:
        """Subscribe and return the answer; ignore other frames."""
        self.read()
        self.say("subscribe", topics=list(topics), ref="sub", **fields)
        return next(frame for frame in self.read() if frame["type"] == "subscribed")

    def publish(self, topic: str, data: Any = None, **fields: Any) -> None:
        self.say("publish", message={"topic": topic, "type": "t", "data": data, **fields})

    def ending(self) -> tuple[int, str] | None:
        """The hub's close code and reason, if it has closed the connection."""
        return self.sink.ended

    def close(self, code: int | None = None) -> None:
        self.rig.hub.closed(self.connection, code)


def events(data: bytes) -> list[dict[str, Any]]:
    """Events of a chunked event stream: name under `event`, id under `mark`, and the data."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body += data[:length]
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]
    found: list[dict[str, Any]] = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "" in fields:
            found.append({"comment": fields[""]})
        else:
            found.append(
                {"event": fields["event"], "mark": fields.get("id"), **orjson.loads(fields["data"])}
            )
    return found


class Rig:
    """A hub with a clock that the test controls. Accepts the settings of `config.Settings`."""

    def __init__(self, *, backplane: Backplane | None = None, **settings: Any) -> None:
        self.now = 1000.0
        # Seconds that pass until the hub reads the clock again.
        self.pace = 0.0
        self.people = People()
        self.rules = Rules()
        self.settings = Settings.model_validate(
            {"publish_rate_user": 1e6, "publish_rate_service": 1e6, **settings}
        )
        wall = never_back(self.wall, lambda: self.now)
        self.hub = Hub(
            self.settings,
            authenticator=self.people,
            policy=self.rules,
            rates=RateLimiter(
                self.settings.publish_rate_user,
                self.settings.publish_rate_service,
                self.settings.publish_burst,
                clock=lambda: self.now,
            ),
            limiter=ConnectionLimiter(
                self.settings.connections_per_user, self.settings.connections_per_org
            ),
            backplane=backplane or open_memory(self.settings, wall),
            clock=self.clock,
            wall=wall,
            today=self.wall,
        )

    def clock(self) -> float:
        self.now += self.pace
        return self.now

    def use_up_turn(self) -> None:
        """Let the time of this turn of the loop pass."""
        assert self.hub.core.turns.free
        self.now += SECONDS

    def wall(self) -> int:
        return START_MS + int((self.now - 1000) * 1000)

    def advance(self, seconds: float) -> None:
        """Advance the time, deadline by deadline."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.05)
            self.hub.core.wheel.run()

    async def settle(self) -> None:
        """Wait until no task of the hub is left."""
        async with asyncio.timeout(60):
            while tasks := list(self.hub._tasks):
                await asyncio.wait(tasks)

    def stranger(self, encoder: Encoder = SOCKET) -> Peer:
        """Open a connection that has not authenticated."""
        return Peer(self, encoder)

    async def client(
        self, token: str, encoder: Encoder = SOCKET, client_id: str | None = None
    ) -> Peer:
        """Open an authenticated connection."""
        peer = Peer(self, encoder)
        await self.hub.authenticate(peer.connection, token, client_id=client_id)
        return peer

    async def members(self, topic: str) -> tuple[Peer, Peer]:
        """Open connections of Alice and Bob, members of a topic. Alice knows of Bob."""
        alice, bob = await self.client("alice"), await self.client("bob")
        alice.subscribe(topic)
        bob.subscribe(topic)
        alice.read()
        return alice, bob
