"""An address in front of a server, which disturbs a job in the middle of its requests."""

from __future__ import annotations

import contextlib
import http.client
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator

    Fault = Callable[[int], None]
    """What disturbs a job; gets the id of the process that sent the request."""

BOUND = 60
"""Maximum seconds of one answer."""


class Relay:
    """Passes requests on, and loses one answer.

    Args:
        url: Address of the server.
        word: Text in the path of the requests that count.
        number: Number of the request, from 1, whose answer is lost.
        fault: Runs when the server has answered this request.

    Attributes:
        disturbed: Id of the process that sent the request whose answer was lost.
    """

    def __init__(self, url: str, word: str, number: int, fault: Fault) -> None:
        self._server = urlsplit(url)
        self._word = word
        self._number = number
        self._fault = fault
        self._lock = threading.Lock()
        self.url = ""
        self.disturbed: int | None = None
        self._asked = 0

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes] | None:
        """Return the server's answer to a request; None if it is lost."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        with self._lock:
            counts = self._word in request.path
            self._asked += counts
            hit = counts and self._asked == self._number
        assert self._server.hostname is not None
        server = http.client.HTTPConnection(self._server.hostname, self._server.port, timeout=BOUND)
        with contextlib.closing(server):
            try:
                server.request(request.command, request.path, body, dict(request.headers))
                answer = server.getresponse()
                found = answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                return None
        if not hit:
            return found
        self.disturbed = process_of(request.connection)
        self._fault(self.disturbed)
        return None


@contextmanager
def relay(url: str, word: str, number: int, fault: Fault) -> Generator[Relay]:
    """Run a relay; see `Relay` for the arguments."""
    made = Relay(url, word, number, fault)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            answer = made.answer(self)
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = _pass

        def log_message(self, format: str, *_: object) -> None:
            """Print nothing."""

    class Listener(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Print nothing: the process at the other end may have been killed."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        made.url = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown()
            thread.join()


def process_of(connection: socket.socket) -> int:
    """Return the id of the process at the other end of a connection on this machine."""
    # Two connections to different servers may have the same port.
    ends = [connection.getpeername()[1], connection.getsockname()[1]]
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if [int(word.rpartition(":")[2], 16) for word in words[1:3]] == ends:
            target = f"socket:[{words[9]}]"
            break
    else:
        raise LookupError(f"no connection has the ports {ends}")
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(file) == target:
                return int(file.parts[2])
    raise LookupError(f"no process has the connection {ends}")
