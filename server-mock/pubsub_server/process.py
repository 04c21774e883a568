"""One process with a server: its event loop, its signals, and its ready line."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from pubsub_server import stream_capacity
from pubsub_server.observe.descriptors import raise_limit
from pubsub_server.server import Server, server_version
from pubsub_server.tasks import Tasks
from pubsub_server.workers.shutdown_barrier import ShutdownBarrier

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from pubsub_server.settings.config import Settings

FULL_COLLECTION_AFTER: Final = 100
"""Collections of the middle generation before a full one: 700,000 more objects, about 70 MB."""

_LOG: Final = logging.getLogger("pubsub_server")


async def run(
    settings: Settings, out: TextIO | None = None, worker: tuple[Path, int] | None = None
) -> None:
    """Runs a server until SIGTERM or SIGINT; prints the ready line to standard output.

    A signal during the start ends the start.

    A worker also stops when its standard input closes, because its supervisor has ended.

    Raises:
        StartError: As `Server.start`.
    """
    loop = asyncio.get_running_loop()
    server = Server(settings, worker=worker)
    if hasattr(signal, "SIGHUP"):
        # First, because a program that rotates logs sends it at any time.
        loop.add_signal_handler(signal.SIGHUP, server.reopen)
    end = asyncio.Event()

    def ask() -> None:
        if end.is_set():
            server.hurry()
        end.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ask)
    if not await _started(server, end):
        return
    quiet = settings.dev or (worker is not None and worker[1])
    raise_limit(None if quiet else settings.max_connections)
    if worker is not None:
        server.barrier = ShutdownBarrier(worker[0], end)
    try:
        print(ready_line(server), file=out or sys.stdout, flush=True)
        who = "" if worker is None else f"worker {worker[1]}: "
        _LOG.info("%sready: %s and %s", who, server.http, server.ws)
        if worker is None or worker[1] == 0:
            _LOG.info("%s", stream_capacity.describe(settings))
        await end.wait()
        _LOG.info("%sshutting down", who)
    finally:
        await server.stop()


async def _started(server: Server, end: asyncio.Event) -> bool:
    """Start the server; False if `end` is set first.

    Raises:
        StartError: As `Server.start`.
    """
    started = False

    async def start() -> None:
        nonlocal started
        await server.start()
        started = True

    async def ended() -> None:
        await end.wait()

    await Tasks(asyncio.get_running_loop(), _LOG, "start").race(start(), ended())
    return started


def ready_line(server: Server) -> str:
    """The JSON line with the addresses of a server."""
    fields = {
        "event": "ready",
        "http": server.http,
        "ws": server.ws,
        **server.others,
        "pid": os.getpid(),
        "version": server_version(),
    }
    return json.dumps(fields)


def tune_collector() -> None:
    """Let the garbage collector delay deliveries less; call it when all imports are done.

    A full collection takes a tenth of a second per million objects. By default, a growing server
    runs one for each quarter of objects that it adds, so a client with many subscriptions would
    cause dozens. Nearly all objects of a server are freed without the collector.
    """
    gc.collect()
    # Imported objects are never garbage: skip them in each collection.
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_AFTER)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop of uvloop where that is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
