"""Other servers to compare with. Servers that are not installed are left out."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.processes import worker
from tests.bench.servers import UNHEARD, Server, peer_server, real_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

OURS = "hanzo-pubsub serve"
OURS_ON_REDIS = "hanzo-pubsub serve on Redis"
BARE = "bare writer on uvloop"
EPOLL = "C on epoll"
NATS = "nats-server, WebSocket"
REDIS = "Redis pub/sub"
BROADCAST = "websockets.broadcast"
NEEDED = {OURS_ON_REDIS: "redis-server", REDIS: "redis-server", NATS: "nats-server", EPOLL: "cc"}
"""Programs, each with the name of its Debian package, except `cc` (gcc)."""
_SOURCE = Path(__file__).with_name("epoll_server.c")
_PATIENCE = 20.0


def present(names: tuple[str, ...]) -> list[str]:
    """Return the contenders that can run on this machine."""
    return [name for name in names if name not in NEEDED or _found(NEEDED[name]) is not None]


def start(name: str) -> AbstractContextManager[Server]:
    """Run one of them."""
    match name:
        case "hanzo-pubsub serve":
            return real_server(**UNHEARD)
        case "hanzo-pubsub serve on Redis":
            return _on_redis()
        case "websockets.broadcast":
            return peer_server("broadcast")
        case "bare writer on uvloop":
            return peer_server("joined")
        case "C on epoll":
            return _epoll()
        case "nats-server, WebSocket":
            return _nats()
        case _:
            return _redis()


def versions() -> dict[str, str]:
    """The versions that the programs report."""
    found: dict[str, str] = {}
    for program in ("nats-server", "redis-server"):
        path = _found(program)
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            words = said.stdout.replace("v=", "v").split()
            found[program] = next(w[1:] for w in words if w[0] == "v" and w[1:2].isdigit())
    return found


def _found(program: str) -> str | None:
    # Debian installs some servers outside the users' PATH.
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/bin")


def _need(program: str) -> str:
    found = _found(program)
    if found is None:
        raise RuntimeError(f"{program} is not installed (apt-get install {program})")
    return found


@contextmanager
def _epoll() -> Generator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "epoll_server"
        subprocess.run([_need("cc"), "-O2", "-o", str(program), str(_SOURCE)], check=True)
        with worker(str(program)) as child:
            yield Server(child, child.read()["ws"])


@contextmanager
def _nats() -> Generator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        config = Path(folder) / "nats.conf"
        config.write_text(
            "host: 127.0.0.1\nport: -1\nmax_pending: 268435456\n"
            f"websocket {{ host: 127.0.0.1, port: {port}, no_tls: true }}\n",
            encoding="ascii",
        )
        log = Path(folder) / "nats.log"
        with worker(_need("nats-server"), "-c", str(config), "-l", str(log)) as child:
            _await(port)
            yield Server(child, f"ws://127.0.0.1:{port}/", dialect="nats")


@contextmanager
def _redis() -> Generator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        flags = ("--save", "", "--maxclients", "15000", "--dir", folder, "--bind", "127.0.0.1")
        # By default, a burst to thousands exceeds the output buffer that it allows a subscriber.
        limit = ("--client-output-buffer-limit", "pubsub 0 0 0", "--logfile", f"{folder}/log")
        with worker(_need("redis-server"), "--port", str(port), *flags, *limit) as child:
            _await(port)
            yield Server(child, f"redis://127.0.0.1:{port}", dialect="redis")


@contextmanager
def _on_redis() -> Generator[Server]:
    with _redis() as store, real_server(store, **UNHEARD) as server:
        yield server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await(port: int) -> None:
    """Wait until a server listens.

    Raises:
        RuntimeError: No server listened in time.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on port {port}")
