"""A server that runs out of file descriptors, in a separate process with a low limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import sys
from typing import TYPE_CHECKING

from pubsub_server.observe.descriptors import raise_limit
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BOUND = 60
LIMIT = 60


async def test_a_lack_of_file_descriptors_is_logged_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pubsub_server", "serve", "--dev", "--ws-port", "0"),
            *("--http-port", "0", "--dev-key-file", str(tmp_path / "key")),
            stdout=asyncio.subprocess.PIPE,
            stderr=err,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT)),
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND):
            ready = json.loads(await process.stdout.readline())
            port = int(ready["http"].rpartition(":")[2])
            with contextlib.ExitStack() as stack:
                for _ in range(2 * LIMIT):
                    each = stack.enter_context(socket.socket())
                    each.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        each.connect(("127.0.0.1", port))
                await until(lambda: "no file descriptors left" in log.read_text(encoding="utf-8"))
    finally:
        process.terminate()
        await process.wait()
    # asyncio's event loop writes its own message as plain text.
    output = log.read_text(encoding="utf-8").splitlines()
    lines = [json.loads(line) for line in output if line.startswith("{")]
    assert [each for each in lines if each["level"] == "warning"] == []
    (failed,) = [each for each in lines if each["level"] == "error"]
    assert failed["message"].startswith(f"no file descriptors left (limit {LIMIT})")


def test_fewer_file_descriptors_than_connections_are_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_NOFILE: (LIMIT, LIMIT)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    raise_limit(LIMIT)
    raise_limit(None)
    assert caplog.messages == []
    raise_limit(LIMIT + 1)
    assert f"fewer than {LIMIT} connections, and max_connections is {LIMIT + 1}" in caplog.text
