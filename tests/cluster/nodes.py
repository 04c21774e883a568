"""Nodes like an operator runs them: server processes that restart on the same ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from tests import forked
from tests.http_client import http_client
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

BOUND = 60


class Node:
    """One server process.

    Args:
        name: Name of its log.
        folder: Folder of its log.
        flags: Options of its command line.
    """

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        self.name = name
        self.http_port, self.ws_port = free_port(), free_port()
        self.log = folder / f"{name}.log"
        self.codes: list[int] = []
        self.ready: dict[str, Any] = {}
        self._flags = flags
        self._process: forked.Server | None = None

    async def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        ports = ("--http-port", str(self.http_port), "--ws-port", str(self.ws_port))
        with self.log.open("ab") as log:
            self._process = await forked.serve("--dev", *ports, *self._flags, stderr=log)
        async with asyncio.timeout(BOUND):
            line = await self._process.stdout.readline()
        assert line, self.log.read_text(encoding="utf-8")
        self.ready = json.loads(line)

    @property
    def ws(self) -> str:
        """URL of its WebSocket."""
        found: str = self.ready["ws"]
        return found

    @property
    def pid(self) -> int:
        """Process id of the running process."""
        assert self._process is not None
        return self._process.pid

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        process, self._process = self._process, None
        assert process is not None
        if process.returncode is None:
            # `Process.send_signal` may reap the process before the event loop does.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        async with asyncio.timeout(BOUND):
            return await process.wait()

    async def restart(self, number: int = signal.SIGTERM) -> int:
        """Stop it, start it again on the same ports, and return its exit code."""
        code = await self.end(number)
        await self.start()
        return code

    async def total(self, name: str) -> float:
        """Return the sum of a metric over its workers."""
        async with http_client() as http:
            text = (await http.get(self.ready["http"] + "/metrics")).text
        samples = (each for one in text_string_to_metric_families(text) for each in one.samples)
        return sum(each.value for each in samples if each.name == name)

    @property
    def running(self) -> bool:
        """Whether it was started and has not been stopped."""
        return self._process is not None
