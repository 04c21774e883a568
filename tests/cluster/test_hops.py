"""The functions that a publish passes on the server are those in docs/inside/call-paths.md."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hanzoai.pubsub import PubSubClient
from pubsub_server.testing import running_server
from tests.cluster.store import running

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "server-mock" / "pubsub_server")

MEMORY = 60
"""Maximum functions from the read of a publish to both writes, in memory."""

REDIS = 86
"""Maximum functions on Redis."""

PUBLISHES = 5
"""Functions that some of these publishes pass are periodic, such as heartbeats."""


def shown(*parts: str) -> list[str]:
    """Return the functions of these parts, from docs/inside/call-paths.md."""
    text = (ROOT / "docs" / "inside" / "call-paths.md").read_text(encoding="utf-8")
    lines = [re.findall(rf"^\*\*{part}\*\*: (.+)$", text, re.MULTILINE) for part in parts]
    return [name for [line] in lines for name in re.findall(r"`([\w.]+)`", line)]


async def passed(**settings: object) -> set[str]:
    """Return the functions of the server that each publish passes."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Comprehensions are functions only in Python 3.11.
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            names.add(code.co_qualname.replace(".<locals>", ""))

    found: list[set[str]] = []
    async with running_server(**settings) as server:
        token = server.admin_token()
        async with (
            PubSubClient(server.ws, token=token) as ps,
            PubSubClient(server.ws, token=token) as reader,
            reader.subscribe("demo.a") as sub,
        ):
            # The first one opens the topic.
            for n in range(1 + PUBLISHES):
                names.clear()
                sys.setprofile(note)
                try:
                    await asyncio.gather(
                        ps.publish("demo.a", {"type": "n", "data": {"n": n}}), anext(sub)
                    )
                finally:
                    sys.setprofile(None)
                found.append(set(names))
    each = set.intersection(*found[1:])
    return {name for name in each if not name.startswith("Faults.")}


async def test_a_publish_passes_the_shown_functions_in_memory() -> None:
    way = shown("Accept", "Store, memory", "Deliver and answer")
    assert await passed() == set(way)
    assert len(way) <= MEMORY


async def test_a_publish_passes_the_shown_functions_on_redis(tmp_path: Path) -> None:
    way = shown("Accept", "Store, Redis", "Deliver and answer")
    async with running("redis", tmp_path / "store") as store:
        assert await passed(redis_url=store.url, dev_key_file=str(tmp_path / "key")) == set(way)
    assert len(way) <= REDIS
