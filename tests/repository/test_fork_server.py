"""Forked test servers end like started ones, and report their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket

import httpx

from tests import forked

BOUND = 60
FREE = ("--dev", "--http-port", "0", "--ws-port", "0")


async def test_a_server_serves_and_ends_with_its_exit_code() -> None:
    async with asyncio.timeout(BOUND):
        server = await forked.serve(*FREE)
        ready = json.loads(await server.stdout.readline())
        assert ready["pid"] == server.pid != os.getpid()
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{ready['http']}/healthz")).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
        # A process that has ended receives no signal.
        server.kill()


async def test_servers_are_told_apart_and_a_signal_is_a_negative_exit_code() -> None:
    async with asyncio.timeout(BOUND):
        killed, wrong = await forked.serve(*FREE), await forked.serve("--http-port", "many")
        assert json.loads(await killed.stdout.readline())["event"] == "ready"
        killed.kill()
        assert await killed.wait() == -signal.SIGKILL
        assert await wrong.wait() == 2
        assert await wrong.stdout.read() == b""


async def test_a_server_has_the_environment_it_is_given() -> None:
    async with asyncio.timeout(BOUND):
        server = await forked.serve(*FREE, env={"HANZO_PUBSUB_PUBLISH_RATE_USER": "no number"})
        assert await server.wait() == 2


async def test_without_descriptors_the_connection_is_the_output() -> None:
    request = {"argv": ["serve", "--no-such-flag"], "env": {}, "cwd": os.getcwd()}
    async with asyncio.timeout(BOUND):
        reader, writer = await asyncio.open_unix_connection(forked._address())
        writer.write(f"{json.dumps(request)}\n".encode())
        assert b"--no-such-flag" in await reader.read()
        writer.close()


async def test_half_a_request_starts_nothing_and_ends_nothing() -> None:
    async with asyncio.timeout(BOUND):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(forked._address())
            client.sendall(b'{"argv": [')
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        server = await forked.serve("--no-such-flag")
        assert await server.wait() == 2
