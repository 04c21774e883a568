"""Helpers for calls of the HTTP API and their responses."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.settings.options import ClientOptions, read_options

if TYPE_CHECKING:
    import respx


BASE = "http://127.0.0.1:8056"
OLD, NEW = "old-token", "new-token"
MESSAGES = f"{BASE}/v1/topics/a.b/messages"
BATCH = f"{BASE}/v1/messages:batch"
ENVELOPE = {"id": "m1", "topic": "a.b", "type": "t", "data": {"x": 1}, "timestamp": 5}


class QuickClock(SystemClock):
    """A clock that does not sleep, and records the requested waits."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Tokens:
    def __init__(self, renewed: str | None = NEW) -> None:
        self.token = OLD
        self.renewed = renewed
        self.rejected: list[str] = []

    async def current(self) -> str:
        return self.token

    async def replace(self, rejected: str) -> str | None:
        self.rejected.append(rejected)
        if self.renewed is not None:
            self.token = self.renewed
        return self.renewed

    def accepted(self) -> None:
        pass


def make_options(**settings: Any) -> ClientOptions:
    return read_options(BASE, OLD, settings=settings, environ={})


def one(id: str | None = "msg_1", data: Any = None, topic: str = "a.b") -> Publication:
    return Publication(topic=topic, type="t", data={"x": 1} if data is None else data, id=id)


def sent(route: respx.Route, index: int = -1) -> Any:
    return json.loads(route.calls[index].request.content)


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    body = {"title": "T", "status": status, "code": code, **more}
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(status, content=json.dumps(body), headers=headers)


ACCEPTED = httpx.Response(200, json={"id": "msg_1", "timestamp": 9, "seq": 3})
