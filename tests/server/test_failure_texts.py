"""The log of the server says why it cannot reach IAM, a webhook or Redis."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl

import aiohttp
import pytest
import trustme
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.backplanes.redis.errors import CLOSED, cause, unusable
from pubsub_server.backplanes.redis.servers import broken
from pubsub_server.shared.failure_texts import http_failure
from pubsub_server.workers.exit_codes import exit_reason


async def failure(url: str, seconds: float = 30.0) -> str:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        with pytest.raises((aiohttp.ClientError, TimeoutError, OSError)) as caught:
            await session.get(url)
    assert isinstance(caught.value, (aiohttp.ClientError, TimeoutError, OSError))
    return http_failure(caught.value)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def number(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


async def test_a_closed_port_is_named() -> None:
    with listening() as listener:
        closed = number(listener)
    assert await failure(f"http://127.0.0.1:{closed}/") == "Connection refused"
    assert await failure(f"http://localhost:{closed}/") == "Connection refused"


async def test_a_server_that_does_not_answer_is_named() -> None:
    with listening() as silent:
        assert await failure(f"http://127.0.0.1:{number(silent)}/", 0.01) == "no answer in time"


async def test_a_certificate_that_is_not_trusted_is_named() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def accept(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()

    with listening() as listener:
        accepting = asyncio.create_task(asyncio.to_thread(accept, listener))
        output = await failure(f"https://127.0.0.1:{number(listener)}/")
        await accepting
    assert output.startswith("the certificate is not trusted: ")
    assert "certificate" in output.removeprefix("the certificate is not trusted: ")


async def test_a_port_without_tls_is_named() -> None:
    def accept(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65_536)

    with listening() as plain:
        accepting = asyncio.create_task(asyncio.to_thread(accept, plain))
        assert (await failure(f"https://127.0.0.1:{number(plain)}/")).startswith("TLS failed: ")
        await accepting


def caused_by(error: OSError) -> RedisConnectionError:
    found = RedisConnectionError("Error connecting to redis:6379.")
    found.__cause__ = error
    return found


def test_a_failed_call_to_redis_has_the_words_of_the_system() -> None:
    refused = caused_by(ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('h', 1)"))
    assert cause(refused) == "Connection refused"
    assert cause(RedisTimeoutError()) == "no answer in time"
    for text in (CLOSED, "Connection closed by server."):
        assert cause(RedisConnectionError(text)) == "the server closed the connection"
    reset = RedisConnectionError(CLOSED)
    reset.__cause__ = ConnectionResetError(errno.ECONNRESET, "reset")
    assert cause(reset) == "Connection reset by peer"


def test_a_redis_that_does_not_answer_while_it_is_dialed_is_silent() -> None:
    with pytest.raises(RedisTimeoutError) as silent, broken():
        raise TimeoutError
    assert cause(silent.value) == "no answer in time"
    assert unusable("redis://redis:6379", silent.value) == (
        "Redis cannot be reached at redis:6379 (no answer in time); does it require TLS"
        " (rediss://), or does another program use this port?"
    )


def test_an_unknown_name_has_the_words_of_the_resolver() -> None:
    # On macOS, this number is also that of `ENOEXEC`, "Exec format error".
    unknown = socket.gaierror(8, "nodename nor servname provided, or not known")
    assert cause(caused_by(unknown)) == "nodename nor servname provided, or not known"


def test_a_redis_without_tls_is_not_called_a_missing_permission() -> None:
    failed = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    output = unusable("rediss://redis:6379", caused_by(failed))
    assert "Operation not permitted" not in output
    assert "WRONG_VERSION_NUMBER" in output


def test_the_signal_that_ended_a_worker_has_a_name() -> None:
    assert exit_reason(-15) == "SIGTERM"
    assert exit_reason(-9) == (
        "SIGKILL (if nothing else sends it, the memory was used up: raise the memory limit of the"
        " service)"
    )
    assert exit_reason(1) == "exit code 1"
    assert exit_reason(-120) == "signal 120"
