"""A server that implements only HIP-56: no `seq`, no `ref`, no acknowledgement, no batch.

It proves that the SDK keeps its promises with such a peer. Its messages are flat or nested. The
test can stop its clock, so that many messages share a millisecond.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Literal, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from hanzoai.pubsub.topics import TopicTrie

Shape = Literal["flat", "nested"]
Json = dict[str, Any]


class PlainServer:
    """Bounded history per topic, `since` as a strict lower bound, broadcast to subscribers."""

    def __init__(self, shape: Shape = "nested", history: int = 1000) -> None:
        self.shape: Shape = shape
        self.now = 1_740_307_200_000
        self.connections = 0
        self._history, self._log = history, defaultdict[str, list[Json]](list)
        self._live: dict[ServerConnection, TopicTrie[str]] = {}
        self._server: Server | None = None
        self._count = 0

    async def __aenter__(self) -> Self:
        self._server = await serve(self._serve, "127.0.0.1", 0, compression=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}/ws"

    @property
    def subscribers(self) -> int:
        return sum(1 for trie in self._live.values() if len(trie))

    def cut(self) -> int:
        """Abort every connection without a closing handshake; return their number."""
        cut = list(self._live)
        for connection in cut:
            self._live.pop(connection)
            connection.transport.abort()
        return len(cut)

    def publish(self, topic: str, kind: str, data: object) -> None:
        self._count += 1
        envelope = {
            "id": f"p{self._count}",
            "topic": topic,
            "type": kind,
            "data": data,
            "timestamp": self.now,
        }
        self._log[topic] = [*self._log[topic], envelope][-self._history :]
        frame = json.dumps(self._frame(envelope))
        for connection, trie in self._live.items():
            if any(trie.match(topic)):
                connection.protocol.send_text(frame.encode())
                connection.transport.write(b"".join(connection.protocol.data_to_send()))

    def _frame(self, envelope: Json) -> Json:
        if self.shape == "nested":
            return {"type": "message", "message": envelope}
        return {**envelope, "type": "message", "message_type": envelope["type"]}

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            async for text in connection:
                await self._receive(connection, json.loads(text))
        except ConnectionClosed:
            pass
        finally:
            self._live.pop(connection, None)

    async def _receive(self, connection: ServerConnection, frame: Json) -> None:
        match frame["type"]:
            case "auth":
                self.connections += 1
                self._live[connection] = TopicTrie()
                await connection.send(
                    json.dumps({"type": "auth.ok", "client_id": f"cl_{self.connections}"})
                )
            case "subscribe":
                for pattern in frame["topics"]:
                    self._live[connection].insert(pattern, pattern)
                await connection.send(
                    json.dumps(
                        {"type": "subscribed", "topics": frame["topics"], **self._replay(frame)}
                    )
                )
            case "unsubscribe":
                for pattern in frame["topics"]:
                    self._live[connection].remove(pattern, pattern)
            case "publish":
                body = frame.get("message", frame)
                self.publish(
                    body["topic"],
                    body.get("message_type") or body.get("type", "message"),
                    body["data"],
                )
            case "ping":
                await connection.send('{"type":"pong"}')
            case kind:
                await connection.send(
                    json.dumps({"type": "error", "code": "unknown_type", "message": kind})
                )

    def _replay(self, frame: Json) -> Json:
        if "since" not in frame:
            return {}
        asked: TopicTrie[str] = TopicTrie()
        for pattern in frame["topics"]:
            asked.insert(pattern, pattern)
        found = [
            m
            for topic, log in self._log.items()
            if any(asked.match(topic))
            for m in log
            if m["timestamp"] > frame["since"]
        ]
        return {"history": sorted(found, key=lambda m: m["timestamp"])}
