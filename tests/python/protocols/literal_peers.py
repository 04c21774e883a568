"""A broker of the event stream and a hub, written from the wire format.

They do not use the product's code. With `chop`, they write one byte at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Self

import trustme

from tests.ports import free_port

Writers = dict[asyncio.StreamWriter, bytes]


class Listener:
    """Accepts connections, and can close them all."""

    def __init__(self, *, chop: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.chop = chop
        self.port = free_port()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.writers: set[asyncio.StreamWriter] = set()
        self.opened = 0
        self.changed = asyncio.Condition()

    async def start(self) -> None:
        """Start it; after a stop, on the same port."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self._tls
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def stop(self) -> None:
        self.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def until(self, count: int) -> None:
        """Wait until this number of connections has subscribed since the start."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.opened >= count)

    async def subscribed(self) -> None:
        async with self.changed:
            self.opened += 1
            self.changed.notify_all()

    def say(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not self.chop:
            writer.write(data)
            return
        for n in range(len(data)):
            writer.write(data[n : n + 1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self.serve(reader, writer)
        finally:
            self._tasks.discard(task)
            self.writers.discard(writer)
            self.forget(writer)
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def forget(self, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class SlowTls:
    """A server that accepts a connection, and does the TLS handshake only in `rest`."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._client: socket.socket | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        if self._client is not None:
            self._client.close()

    async def reached(self) -> None:
        """Wait until a client has connected."""
        async with asyncio.timeout(60):
            self._client, _ = await asyncio.get_running_loop().sock_accept(self._listening)

    async def rest(self, answer: bytes = b"") -> bytes:
        """Encrypt, answer, and return what the client sends until it closes."""
        client, self._client = self._client, None
        assert client is not None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), client, ssl=self._context
        )
        transport.write(answer)
        try:
            async with asyncio.timeout(60):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            transport.abort()


class Broker(Listener):
    """The broker of an event stream."""

    def __init__(self, *, chop: bool = False, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(chop=chop, tls=tls)
        self.topics: Writers = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = True
        while True:
            head = await reader.readexactly(2)
            topic = await reader.readexactly(int.from_bytes(head))
            size = await reader.readexactly(4)
            data = await reader.readexactly(int.from_bytes(size))
            if first:
                first = False
                self.topics[writer] = topic
                await self.subscribed()
                continue
            for other, wanted in list(self.topics.items()):
                if other is not writer and wanted in (topic, b"*"):
                    self.say(other, head + topic + size + data)

    def forget(self, writer: asyncio.StreamWriter) -> None:
        self.topics.pop(writer, None)


class Hub(Listener):
    """A hub of pub0sub."""

    def __init__(self, *, chop: bool = False, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(chop=chop, tls=tls)
        self.topics: dict[asyncio.StreamWriter, set[bytes]] = {}
        self.ids: dict[asyncio.StreamWriter, int] = {}
        self.next = 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode = (await reader.readexactly(1))[0]
            size = int.from_bytes(await reader.readexactly(4))
            body = await reader.readexactly(size)
            id_ = None
            if opcode in (7, 9):
                id_, body = int.from_bytes(body[:8]), body[8:]
            names, rest = [], body[1:]
            for _ in range(body[0]):
                names.append(rest[1 : 1 + rest[0]])
                rest = rest[1 + rest[0] :]
            own = self.topics.setdefault(writer, set())
            if opcode == 2:
                count = 0
                for name in names:
                    for other, wanted in list(self.topics.items()):
                        if name in wanted:
                            count += 1
                            self.say(other, b"\6" + len(name).to_bytes(4) + name + rest)
                self.say(writer, b"\3" + count.to_bytes(4))
            elif opcode == 4:
                own |= set(names)
                self.ids[writer] = self.next
                self.say(writer, b"\5" + self.next.to_bytes(8) + len(own).to_bytes(4))
                self.next += 1
                await self.subscribed()
            elif opcode == 7:
                new = set(names) - own
                own |= new
                self.say(writer, b"\x08" + len(new).to_bytes(4))
            elif opcode == 9:
                gone = set(names) & own if id_ == self.ids.get(writer) else set()
                own -= gone
                self.say(writer, b"\x0a" + len(gone).to_bytes(4))
            else:
                return

    def forget(self, writer: asyncio.StreamWriter) -> None:
        self.topics.pop(writer, None)
        self.ids.pop(writer, None)
