"""NNG 1.11 (pynng) in a process of its own: a failure of its native threads would abort the tests.

The process has one socket at a time. It ends when the test process ends, however that happens.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pynng  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from multiprocessing.connection import Connection

Kind = Literal["pub", "sub"]
TIMEOUT = 30
"""Seconds for one call."""


class NngSocket:
    """A socket of NNG, as its process sees it."""

    def __init__(self, kind: Kind) -> None:
        self._connected = threading.Event()
        self._socket: Any
        if kind == "pub":
            self._socket = pynng.Pub0(send_buffer_size=1000)
        else:
            self._socket = pynng.Sub0(recv_buffer_size=1000, recv_timeout=TIMEOUT * 1000)
        self._socket.add_post_pipe_connect_cb(self._set_connected)

    def listen(self, url: str, tls: tuple[str, str] | None) -> int:
        """Listen with the key and the certificate `tls`. Returns the port, 0 without one."""
        if tls:
            key, chain = tls
            self._socket.tls_config = pynng.TLSConfig(
                pynng.TLSConfig.MODE_SERVER, own_key_string=key, own_cert_string=chain
            )
        address = self._socket.listen(url).local_address
        port = getattr(address, "port", 0)
        return int.from_bytes(port.to_bytes(2, "little"), "big")

    def dial(self, url: str, authority: str | None = None) -> None:
        """Connect in the background, and trust `authority`."""
        if authority:
            self._socket.tls_config = pynng.TLSConfig(
                pynng.TLSConfig.MODE_CLIENT, server_name="localhost", ca_string=authority
            )
        self._socket.dial(url, block=False)

    def _set_connected(self, _: Any) -> None:
        self._connected.set()

    def wait_connected(self) -> bool:
        """Wait for a peer: NNG drops what is sent before its callback."""
        return self._connected.wait(TIMEOUT)

    def subscribe(self, prefix: bytes) -> None:
        self._socket.subscribe(prefix)

    def receive(self, count: int) -> list[bytes]:
        return [self._socket.recv() for _ in range(count)]

    def send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._socket.send(body)

    def close(self) -> None:
        self._socket.close()


class Nng:
    """The test's side of a socket in the other process: each method is one call of `NngSocket`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(self, method: str, *args: object) -> Any:
        """Call a method of the socket. Raises what it raised."""
        return await asyncio.to_thread(self._call, method, args)

    def _call(self, method: str, args: tuple[object, ...]) -> Any:
        self._connection.send((method, args))
        if not self._connection.poll(2 * TIMEOUT):
            raise TimeoutError(f"NNG did not end {method} in {2 * TIMEOUT} seconds")
        succeeded, result = self._connection.recv()
        if not succeeded:
            raise result
        return result

    @asynccontextmanager
    async def socket(self, kind: Kind) -> AsyncGenerator[Nng]:
        """Open a socket for the block."""
        await self.call("open", kind)
        try:
            yield self
        finally:
            await self.call("close")


@contextmanager
def nng_process() -> Generator[Nng]:
    """Start the process for the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Nng(ours)
    finally:
        ours.close()
        process.join(TIMEOUT)
        process.kill()


def _serve(connection: Connection) -> None:
    socket: Any = None
    while True:
        try:
            method, args = connection.recv()
        except EOFError:
            return
        try:
            if method == "open":
                socket = NngSocket(*args)
                connection.send((True, None))
            else:
                connection.send((True, getattr(socket, method)(*args)))
        except Exception as error:
            connection.send((False, error))  # The caller raises it.
