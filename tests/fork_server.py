"""Starts programs by forking: `python -m tests.fork_server SOCKET`. The imports happen once.

Imports take nearly all the time of a start, and the tests start hundreds of servers. Each
connection to the socket starts a program. Send one line of JSON:

- `{"argv": […], "env": {…}, "cwd": …}` starts a server; `argv` contains the arguments after
  `python -m pubsub_server`.
- `{"program": …, "env": {…}, "cwd": …}` runs a file like `python -W error FILE`.
- `{"command": […], "env": {…}, "cwd": …}` runs another program, such as a Redis server.

The streams of the program are these:

- Without descriptors, the connection is its standard output and error. It closes when the program
  has ended.
- With two descriptors (`SCM_RIGHTS`), these are its standard output and error. The answers are the
  lines `{"pid": …}` and, at the end, `{"status": …}`, negative for a signal.

When its standard input ends, it kills what still runs, and exits. So nothing outlives tests that
are killed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pubsub_server.__main__ import main as pubsub_server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

IMPORTS = (
    *("pubsub_server.process", "pubsub_server.backplanes.redis.opening"),
    *(
        "pubsub_server.workers.supervisor",
        "hanzoai.pubsub.blocking.client",
        "hanzoai.pubsub.streams",
    ),
    *("hanzoai.pubsub.transports.websockets_connection", "httpx"),
)
"""The modules that a server imports when it starts, and those that clients import."""

LINE_MAX = 1 << 20
"""Maximum bytes of a request, which contains an environment."""


class ForkServer:
    """Accepts requests on a socket, and reports the exit codes of the started processes."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket | None] = {}
        """The started processes that run, and the connections that wait for their exit codes."""

    def run(self) -> int:
        """Serve until standard input ends; a forked process returns the exit code of its server."""
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waking)
        # Without a handler, the signal does not wake up the loop.
        signal.signal(signal.SIGCHLD, _ignore)
        for watched in (self._listening, woken, sys.stdin.fileno()):
            self._selector.register(watched, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    code = self._accept((woken, waking))
                    if code is not None:
                        return code
                elif key.fileobj == woken:
                    os.read(woken, 4096)
                    self._reap()
                elif not os.read(sys.stdin.fileno(), 4096):
                    for pid in self._clients:
                        os.kill(pid, signal.SIGKILL)
                    return 0

    def _accept(self, pipe: Sequence[int]) -> int | None:
        client, _ = self._listening.accept()
        try:
            request, descriptors = _request(client)
        except (OSError, ValueError):
            client.close()
            return None
        pid = os.fork()
        if not pid:
            self._leave(pipe)
            return _perform(client, request, descriptors)
        for each in descriptors:
            os.close(each)
        if descriptors:
            _say(client, pid=pid)
        else:
            client.close()
        self._clients[pid] = client if descriptors else None
        return None

    def _leave(self, pipe: Sequence[int]) -> None:
        """Release the resources that only the forking process needs."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._listening.close()
        for each in pipe:
            os.close(each)
        for client in self._clients.values():
            if client is not None:
                client.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            client = self._clients.pop(pid, None)
            if client is not None:
                with client:
                    _say(client, status=os.waitstatus_to_exitcode(status))


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read one line, and its file descriptors."""
    line, descriptors, _, _ = socket.recv_fds(client, LINE_MAX, 2)
    while not line.endswith(b"\n"):
        more = client.recv(LINE_MAX)
        if not more:
            raise ValueError("the request has no end")
        line += more
    return json.loads(line), descriptors


def _say(client: socket.socket, **fields: int) -> None:
    # The test may have disconnected.
    with suppress(OSError):
        client.sendall(f"{json.dumps(fields)}\n".encode())


def _perform(client: socket.socket, request: dict[str, Any], descriptors: Sequence[int]) -> int:
    """Run what is requested in this process; return its exit code."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    out, err = descriptors or (client.fileno(), client.fileno())
    os.dup2(out, 1)
    os.dup2(err, 2)
    for each in descriptors:
        os.close(each)
    client.close()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if "command" in request:
        # Python ignores it, and a program keeps what is ignored.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(request["command"][0], request["command"])
    if "program" in request:
        _run(request["program"])
        return 0
    return pubsub_server(request["argv"])


def _run(file: str) -> None:
    warnings.simplefilter("error")
    sys.argv[:] = [file]
    sys.path.insert(0, os.path.dirname(file))
    runpy.run_path(file, run_name="__main__")


def main(arguments: Sequence[str]) -> int:
    """Listen at a socket path."""
    for name in IMPORTS:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(arguments[0])
        listening.listen(128)
        print("ready", flush=True)
        # Garbage collections would copy memory pages that the processes share.
        gc.collect()
        gc.freeze()
        return ForkServer(listening).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
