"""Other servers to compare with. Servers that are not installed are left out."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jwt

from tests.bench.processes import worker
from tests.bench.servers import NO_TIMEOUTS, Server, peer_server, real_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

OURS = "hanzo-pubsub serve"
OURS_ON_REDIS = "hanzo-pubsub serve on Redis"
BARE = "bare writer on uvloop"
EPOLL = "C on epoll"
CENTRIFUGO = "Centrifugo"
CENTRIFUGO_ON_REDIS = "Centrifugo on Redis"
NATS = "nats-server, WebSocket"
REDIS = "Redis pub/sub"
BROADCAST = "websockets.broadcast"
NEEDED = {
    OURS_ON_REDIS: ("redis-server",),
    REDIS: ("redis-server",),
    CENTRIFUGO: ("centrifugo",),
    CENTRIFUGO_ON_REDIS: ("centrifugo", "redis-server"),
    NATS: ("nats-server",),
    EPOLL: ("cc",),
}
"""The programs of a baseline."""
_INSTALL = {
    "cc": "apt-get install gcc",
    "centrifugo": "go install github.com/centrifugal/centrifugo/v6@v6.9.1",
}
"""How to install a program whose Debian package has another name, or that has none."""
_SOURCE = Path(__file__).with_name("epoll_server.c")
_PATIENCE = 20.0


def present(names: tuple[str, ...]) -> list[str]:
    """Return the baselines that can run on this machine."""
    return [name for name in names if all(map(_found, NEEDED.get(name, ())))]


def start(name: str) -> AbstractContextManager[Server]:
    """Run one of them."""
    match name:
        case "hanzo-pubsub serve":
            return real_server(**NO_TIMEOUTS)
        case "hanzo-pubsub serve on Redis":
            return _on_redis()
        case "websockets.broadcast":
            return peer_server("broadcast")
        case "bare writer on uvloop":
            return peer_server("joined")
        case "C on epoll":
            return _epoll()
        case "Centrifugo":
            return _centrifugo()
        case "Centrifugo on Redis":
            return _centrifugo_on_redis()
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
            output = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            words = output.stdout.replace("v=", "v").split()
            found[program] = next(w[1:] for w in words if w[0] == "v" and w[1:2].isdigit())
    if (path := _found("centrifugo")) is not None:
        # If `go install` has built it, it reports the version 0.0.0.
        module = re.search(rb"centrifugal/centrifugo/v\d+\tv([\w.+-]+)", Path(path).read_bytes())
        found["centrifugo"] = "unknown" if module is None else module[1].decode()
    return found


def _found(program: str) -> str | None:
    # Debian installs some servers outside the users' PATH.
    folders = ["/usr/sbin", "/usr/local/bin", *_go_folders()]
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(folders))


@cache
def _go_folders() -> list[str]:
    """Folders in which `go install` puts programs."""
    folders = [os.environ.get("GOBIN", ""), str(Path.home() / "go" / "bin")]
    if (go := shutil.which("go")) is not None:
        output = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=True)
        folders += [str(Path(each) / "bin") for each in output.stdout.strip().split(os.pathsep)]
    return [folder for folder in folders if folder]


def _need(program: str) -> str:
    found = _found(program)
    if found is None:
        how = _INSTALL.get(program, f"apt-get install {program}")
        raise RuntimeError(f"{program} is not installed ({how})")
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
def _centrifugo(store: Server | None = None) -> Generator[Server]:
    """Start Centrifugo with what the real server does by default.

    It checks the token of each connection, lets clients publish, knows who is subscribed, and
    retains messages, so that a client that reconnects gets those that it has missed.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        secret = secrets.token_hex(32)
        topics = {
            "name": "demo",
            "presence": True,
            "history_size": 100,
            "history_ttl": "1h",
            "force_recovery": True,
            "allow_subscribe_for_client": True,
            "allow_publish_for_client": True,
        }
        settings = {
            "http_server": {"address": "127.0.0.1", "port": port},
            "log": {"level": "warn", "file": f"{folder}/log"},
            "usage_stats": {"disabled": True},
            # For readers that don't answer pings.
            "client": {"token": {"hmac_secret_key": secret}, "ping_interval": "1h"},
            "channel": {"namespaces": [topics]},
            "engine": {"type": "memory"}
            if store is None
            else {"type": "redis", "redis": {"address": store.ws}},
        }
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(settings), encoding="ascii")
        token = jwt.encode({"sub": "bench"}, secret, algorithm="HS256")
        with worker(_need("centrifugo"), "--config", str(config)) as child:
            _await(port)
            where = f"ws://127.0.0.1:{port}/connection/websocket"
            held = None if store is None else store.worker
            yield Server(child, where, token=token, dialect="centrifugo", store=held)


@contextmanager
def _centrifugo_on_redis() -> Generator[Server]:
    with _redis() as store, _centrifugo(store) as server:
        yield server


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
    with _redis() as store, real_server(store, **NO_TIMEOUTS) as server:
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
