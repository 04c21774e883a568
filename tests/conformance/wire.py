"""A proxy between client and server that can manipulate single frames."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from websockets.http11 import Request, Response

Json = dict[str, Any]
Side = Literal["client", "server"]
MAX_FRAME = 32 << 20


@dataclass
class Rule:
    """An action on frames.

    Attributes:
        side: The side that sends the frame.
        type: The frame's `type`.
        do: `cut` before forwarding it; forward `half` of it, then cut; cut `after` it; `lose` it;
            `hold` it and all later frames; forward it twice (`double`); `swap` it with the next
            message; `refuse` it, and answer its `ref` with the frames; `add` frames after it.
        times: Number of frames to act on.
        skip: Number of frames to skip first.
        frames: Frames for `add` and `refuse`: objects, or raw texts.
    """

    side: Side
    type: str
    do: Literal["cut", "half", "after", "lose", "hold", "double", "swap", "refuse", "add"]
    times: int = 1
    skip: int = 0
    frames: Sequence[Json | str] = ()


@dataclass(eq=False)
class _Line:
    """One connection through the proxy."""

    client: ServerConnection
    server: ClientConnection
    held: list[tuple[Side, str]] = field(default_factory=list)
    swapped: str | None = None
    cut: bool = False
    holding: set[Side] = field(default_factory=set)

    def end(self, side: Side) -> ServerConnection | ClientConnection:
        return self.server if side == "client" else self.client


class Wire:
    """Forwards WebSocket frames, and passes each one to `reported` as `{side: frame}`."""

    def __init__(self, upstream: str, reported: Callable[[Json], None]) -> None:
        self.upstream = upstream
        self.blocked: Literal["refuse", "hang"] | None = None
        self._reported = reported
        self._rules: list[Rule] = []
        self._lines: set[_Line] = set()
        self._server: Server | None = None
        self._unblocked = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._admit,
            compression=None,
            max_size=MAX_FRAME,
            ping_interval=None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._unblocked.set()
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}/ws"

    def rule(self, **given: Any) -> None:
        self._rules.append(Rule(**given))

    def block(self, how: Literal["refuse", "hang"] | None) -> None:
        self.blocked = how
        if how is None:
            self._unblocked.set()
        else:
            self._unblocked.clear()

    def cut(self) -> None:
        """Abort every connection without a close frame."""
        for line in list(self._lines):
            line.client.transport.abort()

    async def close(self, code: int) -> None:
        """Close every connection like the server, with this code."""
        for line in list(self._lines):
            await line.client.close(code)

    async def release(self) -> None:
        """Forward the held frames."""
        for line in self._lines:
            held, line.held = line.held, []
            line.holding.clear()
            for side, text in held:
                await line.end(side).send(text)

    async def add(self, frames: Sequence[Json | str]) -> None:
        """Send frames to every client in the name of the server."""
        for line in self._lines:
            for frame in frames:
                await line.client.send(_text(frame))

    async def _admit(self, connection: ServerConnection, _: Request) -> Response | None:
        if self.blocked == "hang":
            await self._unblocked.wait()
        if self.blocked == "refuse":
            return connection.respond(HTTPStatus.BAD_GATEWAY, "no WebSocket gets through\n")
        return None

    async def _serve(self, client: ServerConnection) -> None:
        try:
            server = await connect(
                self.upstream, compression=None, max_size=MAX_FRAME, ping_interval=None, proxy=None
            )
        except OSError:
            client.transport.abort()
            return
        line = _Line(client, server)
        self._lines.add(line)
        try:
            await asyncio.gather(self._pump(line, "client"), self._pump(line, "server"))
        finally:
            self._lines.discard(line)
            server.transport.abort()
            client.transport.abort()

    async def _pump(self, line: _Line, side: Side) -> None:
        source = line.client if side == "client" else line.server
        other = line.end(side)
        try:
            async for text in source:
                await self._pass(line, side, str(text))
                if line.cut:
                    break  # discard the data that is already read
        except ConnectionClosed:
            pass
        if line.cut:
            line.server.transport.abort()
            line.client.transport.close()
            return
        if source.close_code is None or source.close_code == 1006:
            other.transport.abort()
        else:
            await other.close(source.close_code, source.close_reason or "")

    async def _pass(self, line: _Line, side: Side, text: str) -> None:
        frame: Json = json.loads(text)
        self._reported({side: frame})
        rule = self._rule_for(side, str(frame.get("type")))
        if side in line.holding or (rule and rule.do == "hold"):
            line.holding.add(side)
            line.held.append((side, text))
            return
        line.cut = rule is not None and rule.do in ("cut", "half", "after")
        match rule and rule.do:
            case "cut":
                line.client.transport.abort()
            case "half":
                await self._half(line, side, text)
            case "after":
                await line.end(side).send(text)
                # Written data is sent before the connection ends; a close frame is not.
                line.client.transport.close()
                line.server.transport.abort()
            case "swap":
                line.swapped = text
            case "lose":
                pass
            case "refuse":
                answers = rule.frames if rule else ()
                for answer in answers:
                    reported = (
                        answer if isinstance(answer, str) else {**answer, "ref": frame["ref"]}
                    )
                    await line.client.send(_text(reported))
            case "double":
                await line.end(side).send(text)
                await line.end(side).send(text)
            case _:
                await line.end(side).send(text)
                for added in rule.frames if rule else ():
                    await line.end(side).send(_text(added))
                if line.swapped is not None and frame["type"] == "message":
                    text, line.swapped = line.swapped, None
                    await line.end(side).send(text)

    async def _half(self, line: _Line, side: Side, text: str) -> None:
        end = line.end(side)
        end.protocol.send_text(text[: len(text) // 2].encode(), fin=False)
        end.transport.write(b"".join(end.protocol.data_to_send()))
        end.transport.close()
        (line.server if end is line.client else line.client).transport.abort()

    def _rule_for(self, side: Side, type_: str) -> Rule | None:
        for rule in self._rules:
            if (rule.side, rule.type) == (side, type_) and rule.times:
                if rule.skip:
                    rule.skip -= 1
                else:
                    rule.times -= 1
                    return rule
        return None


def _text(frame: Json | str) -> str:
    return frame if isinstance(frame, str) else json.dumps(frame)
