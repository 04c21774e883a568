"""The server of the show: a process of its own, on free ports, with everything embedded."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import httpx

from pubsub_server.auth.dev_tokens import load_key, mint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

START = 20.0
"""Seconds that the server may take to start."""
STANDARD_RATE = 100.0
"""Publishes per second that HIP-56 allows a service."""
SESSION = "demo"


class ServerFailed(Exception):
    """The server did not start; the text says what it printed."""


@dataclass(slots=True)
class Server:
    """A running server.

    Attributes:
        ws: URL of its WebSocket.
        http: URL of its HTTP API.
        notice: Seconds before the end of a token at which it asks for a new one.
    """

    ws: str
    http: str
    notice: float
    key: bytes
    admin: httpx.AsyncClient

    def token(self, user: str, *, service: bool = False, ttl: float = 3600) -> str:
        """A token that the server accepts for this many seconds."""
        return mint(
            self.key,
            user,
            kind="service" if service else "user",
            name=user,
            ttl=ttl,
            sessions_owned=[SESSION],
        )

    async def fault(self, kind: str, **parameters: Any) -> None:
        """Break something, through the door that `--faults` opens."""
        answer = await self.admin.post("/v1/faults", json={"fault": kind, **parameters})
        answer.raise_for_status()


@asynccontextmanager
async def start(*, words: int, rate: float, notice: float) -> AsyncGenerator[Server]:
    """Start a server, and end it with the block.

    Args:
        words: History is kept for this many, and some more.
        rate: Words a second; the limit of a service is raised where this is over it.
        notice: Seconds before the end of a token at which the server asks for a new one.

    Raises:
        ServerFailed: It did not start.
    """
    with tempfile.TemporaryDirectory(prefix="hanzo-pubsub-demo-") as folder:
        key_file = Path(folder, "dev.key")
        key = load_key(key_file)
        settings = {
            "http-port": "0",
            "ws-port": "0",
            "dev-key-file": str(key_file),
            "history-max-messages": str(words + 1000),
            "history-page-max": "1000",
            "expiring-notice": f"{round(notice * 1000)}ms",
            "log-level": "warning",
        }
        if rate > STANDARD_RATE / 1.5:
            settings["publish-rate-service"] = str(round(rate * 2))
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with tempfile.TemporaryFile() as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hanzoai.pubsub.cli", "serve", "--dev", "--faults"),
                *flags,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={k: v for k, v in os.environ.items() if not k.startswith("HANZO_PUBSUB_")},
            )
            try:
                ready = await _ready(process, log)
                headers = {"Authorization": f"Bearer {mint(key, 'director', kind='admin')}"}
                async with httpx.AsyncClient(
                    base_url=ready["http"], headers=headers, timeout=5
                ) as admin:
                    yield Server(ready["ws"], ready["http"], notice, key, admin)
            finally:
                await _end(process)


async def _ready(process: asyncio.subprocess.Process, log: IO[bytes]) -> dict[str, str]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            while line := await process.stdout.readline():
                found = json.loads(line)
                if found.get("event") == "ready":
                    return dict(found)
    except (TimeoutError, ValueError):
        pass
    log.seek(0)
    said = log.read()[-2000:].decode(errors="replace").strip()
    raise ServerFailed(f"the server did not start: {said or 'it printed nothing'}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(8):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
