"""The environment of a scenario: a server, a proxy to it, users, clients, and saved values."""

from __future__ import annotations

import json
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import httpx

from pubsub_server.testing import RunningServer, running_server
from tests.conformance.peer_process import PATIENCE, Stream
from tests.conformance.wire import Wire
from tests.interop.plain_server import PlainServer
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.conformance.peer_process import PeerProcess

Json = dict[str, Any]
SERVER = {"publish_rate_user": 1e6, "publish_rate_service": 1e6}
"""Rate limits are high unless a scenario tests them."""
CLIENT = {"transport": "websocket", "retry": {"base": 5, "cap": 20}}
"""Short connections cause no fallback, and retries are fast, unless a scenario sets otherwise."""
USERS: dict[str, Json] = {
    "service": {"kind": "service", "orgs": ["acme"]},
    "root": {"kind": "admin"},
}
"""All others are users who belong to acme."""


class World:
    """Everything around the clients of one scenario."""

    def __init__(self, given: Json, peer: PeerProcess, folder: Path) -> None:
        self.peer = peer
        self.saved: Json = {}
        self.wire: Wire | None = None
        self.plain: PlainServer | None = None
        self.server: RunningServer | None = None
        self._given = given
        self._folder = folder
        self._stack = AsyncExitStack()
        self._serving = AsyncExitStack()
        self._frames = Stream()
        self._secrets: dict[str, str] = {}
        self._ports: Json = {"http_port": free_port(), "ws_port": free_port()}

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _enter(self) -> None:
        self._stack.push_async_callback(self.stop)
        if "plain" in self._given:
            self.plain = PlainServer(**self._given["plain"])
            await self._stack.enter_async_context(self.plain)
        else:
            await self.start()
        if self._given.get("wire"):
            upstream = self.plain.url if self.plain else self._running.ws
            self.wire = Wire(upstream, lambda frame: self._frames.put(self._named(frame)))
            await self._stack.enter_async_context(self.wire)

    @property
    def _running(self) -> RunningServer:
        assert self.server is not None, "the server is stopped"
        return self.server

    # ---------------------------------------------------------------- the server

    async def start(self) -> None:
        """Start the server; after a stop, on the same ports."""
        settings: Json = {
            **SERVER,
            "drain_timeout": 0,
            "dev_key_file": self._folder / "dev.key",
            **self._given.get("server", {}),
            **self._ports,
        }
        if "rules" in self._given:
            rules = self._folder / "rules.yaml"
            rules.write_text(json.dumps({"rules": self._given["rules"]}), encoding="utf-8")
            settings["rules"] = rules
        self.server = self._issuer = await self._serving.enter_async_context(
            running_server(**settings)
        )

    async def stop(self) -> None:
        self.server = None
        await self._serving.aclose()

    async def fault(self, fault: Json) -> None:
        """Send a request to the control interface."""
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            token = self._running.admin_token("fault-injector")
            answer = await http.post(
                f"{self._running.http}/v1/faults",
                json=fault,
                headers={"Authorization": f"Bearer {token}"},
            )
        answer.raise_for_status()

    # ---------------------------------------------------------------- clients

    def options(self, user: str | None, given: Json, *, direct: bool) -> Json:
        """Return the options of a client: the defaults, replaced by those of the scenario."""
        base: Json = dict(CLIENT)
        if self.plain is not None:
            base["url"] = self.wire.url if self.wire else self.plain.url
            base["token"] = "anything"
        else:
            base["url"] = self.wire.url if self.wire and not direct else self._running.ws
            base["rest_url"] = self._running.http
            if "get_token" not in given and "token" not in given and user:
                base["token"] = self.token(user)
        return {name: value for name, value in {**base, **given}.items() if value != "$none"}

    def token(self, user: str, **claims: Any) -> str:
        """Return a token of a user; the transcript shows only its name."""
        known = {
            **USERS.get(user, {"orgs": ["acme"]}),
            **self._given.get("users", {}).get(user, {}),
        }
        token = self._issuer.token(user, **{**known, **claims})
        self._secrets[token] = f"<token of {user}>"
        return token

    def stream(self, name: str) -> Stream:
        return self._frames if name == "wire" else self.peer.stream(name)

    def fill(self, value: Any) -> Any:
        """Insert values that only the run knows, or that are too long to write.

        `$ref` (and `plus`), `$token`, `$now`, `$repeat`, `$range`, `$topics`, `$nested`, `$concat`,
        `$json`.
        """
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"$ref": name}:
                return self.saved[name] + value["plus"] if "plus" in value else self.saved[name]
            case {"$token": user}:
                claims = {key: item for key, item in value.items() if key != "$token"}
                return self.token(user, **claims)
            case {"$now": offset}:
                return round(time.time() * 1000) + offset
            case {"$repeat": [text, count]}:
                return text * count
            case {"$range": [low, high]}:
                return list(range(low, high))
            case {"$topics": count}:
                return [f"demo.t{n}" for n in range(count)]
            case {"$nested": depth}:
                return json.loads("[" * depth + "]" * depth)
            case {"$concat": parts}:
                return "".join(self.fill(part) for part in parts)
            case {"$json": text}:
                return json.loads(text)
            case _:
                return {
                    self.saved[key[1:]] if key[1:] in self.saved and key[:1] == "$" else key: (
                        self.fill(item)
                    )
                    for key, item in value.items()
                }

    def masked(self, text: str) -> str:
        """Remove the tokens from a text."""
        for token, name in self._secrets.items():
            text = text.replace(token, name)
        return text

    def _named(self, frame: Json) -> Json:
        found: Json = json.loads(self.masked(json.dumps(frame)))
        return found
