"""Calls over real sockets whose peer stalls, breaks TLS, or cannot be addressed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from websockets.asyncio.server import ServerConnection, serve

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.errors import ClosedError, ConnectionFailed, OperationTimeout, PubSubError
from hanzoai.pubsub.generated.wire import AuthFrame, SubscribeFrame
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.settings.options import RetryOptions, read_options
from hanzoai.pubsub.transports import TransportClosed
from hanzoai.pubsub.transports.sse import SseTransport
from tests.python.received import open_transport, receive
from tests.python.rest.rig import Tokens, one

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hanzoai.pubsub.settings.options import ClientOptions

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BOUND = 60


@contextlib.asynccontextmanager
async def listening(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Serve connections; yields the base URL."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await serve(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(run, "127.0.0.1", 0, ssl=context)
    scheme = "http" if context is None else "https"
    async with asyncio.timeout(BOUND), server:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def options_for(url: str, **settings: Any) -> ClientOptions:
    given = {"retry": RetryOptions(base=0.001, cap=0.001), **settings}
    return read_options(url, "token", settings=given, environ={})


def answer(body: bytes, *, size: int | None = None, kind: str = "application/json") -> bytes:
    length = len(body) if size is None else size
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


async def test_a_request_that_the_server_holds_has_the_whole_time_of_its_call() -> None:
    requests = 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        # `operation_timeout` also limits a connection attempt, which may fail on a busy machine.
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        await asyncio.sleep(0.6)  # longer than `operation_timeout`
        writer.write(answer(b'{"positions": [], "timestamp": 7}'))
        await writer.drain()
        await reader.read(1)

    async with listening(hold) as url:
        rest = Rest(options_for(url, operation_timeout=0.3), Tokens(), SystemClock())
        found = await rest.positions(["a.b"], wait_ms=30_000)
        await rest.close()
    assert (found.positions, requests) == ([], 1)


async def test_an_unusable_proxy_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    url = "https://ps.invalid"
    for proxy, reason in [
        ("socks5://me:s3cr3t@127.0.0.1:1", "SOCKS"),
        ("http://me:s3cr3t@127.0.0.1:port", "URL of the proxy is invalid"),
        ("other://me:s3cr3t@127.0.0.1:1", "URL of the proxy is invalid"),
    ]:
        monkeypatch.setenv("https_proxy", proxy)
        rest = Rest(options_for(url), Tokens(), SystemClock())
        with pytest.raises(ConnectionFailed, match=reason) as caught:
            await rest.publish(one())
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
        await rest.close()
        transport = SseTransport(options_for(url), SystemClock())
        await open_transport(transport)
        transport.send(AuthFrame(token="token", version=1))
        closed = await end_of(transport)
        assert reason in closed.reason
        await transport.close()


@pytest.mark.parametrize("host", ["\u00fc..b.invalid", "xn--.invalid"])
async def test_a_host_name_that_cannot_exist_is_a_failed_connection(host: str) -> None:
    rest = Rest(options_for(f"https://{host}"), Tokens(), SystemClock())
    with pytest.raises(ConnectionFailed, match="cannot be resolved"):
        await rest.publish(one())
    await rest.close()
    transport = SseTransport(options_for(f"https://{host}"), SystemClock())
    await open_transport(transport)
    transport.send(AuthFrame(token="token", version=1))
    assert "cannot be resolved" in (await end_of(transport)).reason
    await transport.close()


@pytest.mark.parametrize("given", [True, False])
async def test_a_proxy_that_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    url = "https://ps.invalid"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://me:s3cr3t@127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", proxy)
        options = options_for(url, **({"proxy": proxy} if given else {}))
        rest = Rest(options, Tokens(), SystemClock())
        with pytest.raises(ConnectionFailed) as caught:
            await rest.publish(one())
        await rest.close()
        transport = SseTransport(options, SystemClock())
        await open_transport(transport)
        transport.send(AuthFrame(token="token", version=1))
        closed = await end_of(transport)
        await transport.close()
    reason = "The proxy 127.0.0.1 refused the connection: no program uses this port."
    assert caught.value.message == closed.reason == reason


async def test_a_proxy_that_rejects_a_request_is_named_with_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(reject, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://me:s3cr3t@127.0.0.1:{port}")
        rest = Rest(options_for("https://ps.invalid"), Tokens(), SystemClock())
        with pytest.raises(ConnectionFailed) as caught:
            await rest.publish(one())
        await rest.close()
    assert caught.value.message == "The proxy 127.0.0.1 answered HTTP 407."
    assert caught.value.remedy == "Check the user name and the password in the URL of the proxy."


async def test_a_cancelled_close_of_a_client_ends_its_requests() -> None:
    asked = asyncio.Event()

    async def answer_auth_only(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send('{"type":"auth.ok","client_id":"c","features":["ref","ack"]}')
        async for _ in socket:
            pass

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async with listening(answer_nothing) as http, serve(answer_auth_only, "127.0.0.1", 0) as ws:
        url = f"ws://127.0.0.1:{next(iter(ws.sockets)).getsockname()[1]}/ws"
        ps = PubSubClient(url, token="token", rest_url=http, operation_timeout=600)
        await ps.connect()
        publish = asyncio.create_task(ps.publish("a.b", {"data": 1}))
        request = asyncio.create_task(ps.presence("a.b"))
        await asked.wait()
        closing = asyncio.create_task(ps.close(timeout=600))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClosedError):
            await request
        await ps.close(timeout=0)
        with pytest.raises(PubSubError):
            await publish


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def damaging(kind: str = "application/json") -> Serve:
    """Answer with the beginning of a body, and then a record that is not TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"{", size=100, kind=kind))
        await writer.drain()
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as raw:
            raw.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await reader.read()

    return serve


async def test_damaged_tls_is_a_lost_connection(
    tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with listening(damaging(), tls) as url:
        rest = Rest(options_for(url, ssl_context=trusting), Tokens(), SystemClock())
        with pytest.raises(ConnectionFailed, match="TLS"):
            await rest.perform(rest_calls.topics())
        with pytest.raises(OperationTimeout) as caught:
            await rest.publish(one())
        assert caught.value.outcome_unknown
        await rest.close()


async def end_of(transport: SseTransport) -> TransportClosed:
    while True:
        try:
            await receive(transport)
        except TransportClosed as closed:
            return closed


async def test_damaged_tls_ends_an_event_stream_with_its_reason(
    tls: ssl.SSLContext, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    session = answer(b'{"client_id": "cl_1", "version": 1}')
    damage = damaging("text/event-stream")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(session)
        await damage(reader, writer)

    async with listening(serve, tls) as url:
        transport = SseTransport(options_for(url, ssl_context=trusting), SystemClock())
        await open_transport(transport)
        transport.send(AuthFrame(token="token", version=1))
        await receive(transport)
        transport.send(SubscribeFrame(topics=["a.b"], ref="s1"))
        closed = await end_of(transport)
        assert "TLS" in closed.reason
        await transport.close()
    assert not caplog.records


@pytest.mark.parametrize("patched", [False, True])
async def test_no_connection_stays_idle_if_gevent_has_patched_select(
    monkeypatch: pytest.MonkeyPatch, *, patched: bool
) -> None:
    """The check of an idle connection runs other green threads, which would find the loop."""

    def is_module_patched(name: str) -> bool:
        return patched and name == "select"

    gevent: Any = ModuleType("gevent.monkey")
    gevent.is_module_patched = is_module_patched
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)
    connections = requests = 0

    async def positions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, requests
        connections += 1
        lasts = True
        while lasts and requests < 2:
            request = await reader.readuntil(b"\r\n\r\n")
            requests += 1
            lasts = b"connection: close" not in request.lower()
            writer.write(answer(b'{"positions": [], "timestamp": 7}'))
            await writer.drain()

    async with listening(positions) as url:
        rest = Rest(options_for(url), Tokens(), SystemClock())
        for _ in range(2):
            await rest.positions(["a.b"])
        await rest.close()
    assert connections == (2 if patched else 1)
