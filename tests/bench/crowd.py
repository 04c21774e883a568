"""Many idle clients in one process: `python -m tests.bench.crowd`.

Reads JSON commands from standard input, one per line: `open`, `idle`, `drain`, `close`. Each client
has its own token and user, and answers pings as browsers do.
"""

from __future__ import annotations

import errno
import json
import re
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pubsub_server.auth.dev_tokens import mint
from tests.bench.processes import percentile
from tests.bench.readers import raise_limit
from tests.bench.wire import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

END: Final = b"@END@"
PING, PONG = b"\x89\x00", b"\x8a\x80\0\0\0\0"
UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
IP_BIND_ADDRESS_NO_PORT: Final = 24
PATIENCE: Final = 120.0
"""Seconds without progress before it gives up."""


class Client:
    """A connection that is being opened. The object is dropped once it is open."""

    __slots__ = ("began", "got", "number", "socket", "step")

    def __init__(self, number: int, socket: socket.socket) -> None:
        self.number = number
        self.socket = socket
        self.step = 0
        self.got = b""
        self.began = time.monotonic()


class Crowd:
    """Clients of one server."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._pings: dict[int, int] = {}
        self._topic, self._members, self._presence = "", 1, True

    def open(
        self,
        port: int,
        source: str,
        key: str,
        first: int,
        count: int,
        at_once: int,
        name: str = "demo.session",
        members: int = 2,
        presence: bool = True,
    ) -> Json:
        """Open connections, a limited number at a time.

        Args:
            port: WebSocket port of the server on 127.0.0.1.
            source: Source address of the connections.
            key: Key that signs their tokens.
            first: Number of the first client.
            count: Number of clients.
            at_once: Connections to open at the same time.
            name: Prefix of their topics: NAME.0, NAME.1, …
            members: Number of consecutive clients that share a topic.
            presence: Whether they request presence.

        Returns:
            Seconds for all, and milliseconds per connection from connecting until it was open.
        """
        self._topic, self._members, self._presence = name, members, presence
        numbers = iter(range(first, first + count))
        coming: dict[int, Client] = {}
        taken: list[float] = []
        begin = progress = time.monotonic()
        while len(taken) < count:
            while len(coming) < at_once and (client := _dial(numbers, port, source)) is not None:
                fd = client.socket.fileno()
                coming[fd] = client
                self._poll.register(fd, select.EPOLLOUT)
            for fd, _ in self._poll.poll(1.0):
                entering = coming.get(fd)
                if entering is None:
                    self._answer(fd)
                elif self._step(entering, key.encode()):
                    progress = time.monotonic()
                    taken.append((progress - entering.began) * 1000)
                    self._sockets[fd] = coming.pop(fd).socket
                    self._pings[fd] = 0
            if time.monotonic() - progress > PATIENCE:
                return {"error": f"{len(taken)} of {count} connections in {PATIENCE:.0f} s"}
        return {
            "seconds": time.monotonic() - begin,
            "p50_ms": percentile(taken, 0.5),
            "p99_ms": percentile(taken, 0.99),
        }

    def _step(self, client: Client, key: bytes) -> bool:
        """Handle what the socket is ready for; return whether the connection is open."""
        channel = client.socket
        if client.step == 0:
            channel.sendall(UPGRADE)
            self._poll.modify(channel, select.EPOLLIN)
            client.step = 1
            return False
        data = channel.recv(65_536)
        if not data:
            raise ConnectionError(f"closed in step {client.step}: {client.got[-200:]!r}")
        client.got += data
        if client.step == 1 and b"\r\n\r\n" in client.got:
            user = f"user{client.number}"
            token = mint(key, user, orgs=["bench"], name=f"User {client.number}")
            channel.sendall(_frame({"type": "auth", "token": token, "version": 1}))
        elif client.step == 2 and b'"auth.ok"' in client.got:
            topic = f"{self._topic}.{client.number // self._members}"
            wanted = {"topics": [topic], "ref": "1", "presence": self._presence}
            channel.sendall(_frame({"type": "subscribe", **wanted}))
        elif client.step == 3 and self._greeted(client.got):
            return True
        else:
            if b"error" in client.got:
                raise ConnectionError(client.got[-300:].decode(errors="replace"))
            return False
        client.step, client.got = client.step + 1, b""
        return False

    def _greeted(self, got: bytes) -> bool:
        return (b'"presence.snapshot"' if self._presence else b'"subscribed"') in got

    def drain(self) -> Json:
        """Discard incoming data until every client has received the last message."""
        tails = dict.fromkeys(self._sockets, b"")
        deadline = time.monotonic() + PATIENCE
        while tails:
            if time.monotonic() > deadline:
                return {"error": f"{len(tails)} clients did not see the last message"}
            for fd, _ in self._poll.poll(1.0):
                data = self._sockets[fd].recv(65_536)
                if not data:
                    return {"error": "the server has closed a connection"}
                if data.startswith(PING) or data.endswith(PING):
                    self._sockets[fd].send(PONG)
                if fd in tails:
                    tails[fd] = (tails[fd] + data)[-512:]
                    if END in tails[fd]:
                        del tails[fd]
        return {"drained": len(self._sockets)}

    def idle(self, seconds: float) -> Json:
        """Answer pings for some seconds; return the total, and minimum and maximum per client."""
        self._pings = dict.fromkeys(self._pings, 0)
        other = 0
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(left):
                other += not self._answer(fd)
        pings = self._pings.values()
        return {
            "open": len(self._sockets),
            "pings": sum(pings),
            "least": min(pings),
            "most": max(pings),
            "other": other,
        }

    def _answer(self, fd: int) -> bool:
        channel = self._sockets[fd]
        data = channel.recv(65_536)
        if not data:
            raise ConnectionError("the server has closed an idle connection")
        if data.endswith(PING):
            self._pings[fd] += 1
            channel.send(PONG)
            return True
        return False

    def close(self) -> Json:
        """Close all sockets without a closing handshake."""
        count = len(self._sockets)
        for channel in self._sockets.values():
            channel.close()
        self._sockets.clear()
        self._pings.clear()
        return {"closed": count}


def _dial(numbers: Iterator[int], port: int, source: str) -> Client | None:
    number = next(numbers, None)
    if number is None:
        return None
    channel = socket.socket()
    channel.setblocking(False)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Choose the port on connect, so that each source can use all ports for each server.
    channel.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    channel.bind((source, 0))
    failed = channel.connect_ex(("127.0.0.1", port))
    if failed not in (0, errno.EINPROGRESS):
        raise OSError(failed, errno.errorcode[failed])
    return Client(number, channel)


def _frame(content: Json) -> bytes:
    return masked(json.dumps(content, separators=(",", ":")).encode())


Json = dict[str, Any]
_DO: Final = re.compile("open|idle|drain|close")


def main() -> None:
    raise_limit()
    crowd = Crowd()
    for line in sys.stdin:
        command = json.loads(line)
        what = _DO.fullmatch(command.pop("do"))
        assert what is not None
        if what[0] == "drain":
            # Print this before the loop starts, so that the publisher can start.
            print("{}", flush=True)
        print(json.dumps(getattr(crowd, what[0])(**command)), flush=True)


if __name__ == "__main__":
    main()
