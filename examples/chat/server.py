"""A development server for the examples, in its own process and on free ports."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import httpx

from pubsub_server.auth.dev_tokens import load_key, mint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

START: Final = 60.0
"""Seconds that the server may take to start."""
SESSION: Final = "demo"


class ServerFailed(Exception):
    """The server did not start; the text contains what it printed."""


@dataclass(slots=True)
class Server:
    """A running server.

    Attributes:
        ws: URL of its WebSocket.
        http: URL of its HTTP API.
    """

    ws: str
    http: str
    key: bytes
    admin: httpx.AsyncClient

    def token(self, user: str, *, service: bool = False, ttl: float = 3600) -> str:
        """Create a token that is valid for `ttl` seconds."""
        return mint(
            self.key,
            user,
            kind="service" if service else "user",
            name=user,
            ttl=ttl,
            sessions_owned=[SESSION],
        )

    async def fault(self, kind: str, **parameters: Any) -> None:
        """Cause a fault, through the endpoint that `--faults` enables."""
        answer = await self.admin.post("/v1/faults", json={"fault": kind, **parameters})
        answer.raise_for_status()


@asynccontextmanager
async def start(**settings: str) -> AsyncGenerator[Server]:
    """Start a server, and end it with the block.

    Args:
        **settings: Settings of the server by their names, with underscores. Without them limits,
            history and everything else that clients notice have their defaults.

    Raises:
        ServerFailed: It did not start.
    """
    with tempfile.TemporaryDirectory(prefix="hanzo-pubsub-demo-") as folder:
        key_file = Path(folder, "dev.key")
        key = load_key(key_file)
        own = {"http_port": "0", "ws_port": "0", "log_level": "warning"}
        flags = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in {**own, "dev_key_file": key_file, **settings}.items()
        ]
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
                    yield Server(ready["ws"], ready["http"], key, admin)
            finally:
                await end(process)


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
    printed = log.read()[-2000:].decode(errors="replace").strip()
    raise ServerFailed(f"the server did not start: {printed or 'it printed nothing'}")


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process: ask it, and kill it after 8 seconds."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(8):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
