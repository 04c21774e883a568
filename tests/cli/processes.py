"""The command as a process, which uses a server of the test."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from tests import programs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    import pytest

    from pubsub_server.shared.requests import Draft
    from pubsub_server.testing import RunningServer

LIMIT = 60
"""Maximum seconds of a process."""


def variables(server: RunningServer, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "HANZO_PUBSUB_URL": server.ws,
        "HANZO_PUBSUB_REST_URL": server.http,
        "HANZO_PUBSUB_TOKEN": server.service_token(),
        **more,
    }


def started(
    *argv: str,
    env: dict[str, str],
    stdin: int = asyncio.subprocess.DEVNULL,
    out: int = asyncio.subprocess.PIPE,
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    command = (sys.executable, "-W", "error", "-m", "hanzoai.pubsub.cli", *argv)
    return programs.started(*command, within=LIMIT, stdin=stdin, out=out, env=env, limit=2**20)


async def until_subscribed(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if json.loads(line)["event"] == "subscribed":
            return
    raise AssertionError("it never subscribed")


def hold_answers(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server publish messages without answering their publishers."""
    backplane = server.hub.core.backplane
    publish = backplane.publish

    def unanswered(drafts: Sequence[Draft], sender: tuple[str, str], *_: object) -> None:
        publish(drafts, sender, lambda _: None, None)

    monkeypatch.setattr(backplane, "publish", unanswered)
