"""The call paths of a message in the client are as short as docs/inside/call-paths.md shows."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hanzoai.pubsub import PubSub, PubSubClient

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from hanzoai.pubsub.testing.threaded import ThreadedServer

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "python" / "hanzoai" / "pubsub")
RECEIVE = 10
"""Maximum functions on the path of a received message."""

PUBLISH = 15
"""Maximum functions until the first byte of a publish is written."""

SOMETIMES = (
    "IdMaker._begin",
    "Publishes._pace",
    "Timers.",
    "Driver.start_timer",
    "Driver.cancel_timer",
    "SystemClock.",
)
"""Functions that run for only few publishes."""

WAITS = {
    "Subscription._wait_entry",
    "Inbox.empty",
    "Waiters.wait",
    "Waiters.notify",
    "BufferedReads.get_buffer",
}
"""Functions that run before or after a message."""


def shown(way: str) -> list[str]:
    """Return the functions of a path, from docs/inside/call-paths.md."""
    text = (ROOT / "docs" / "inside" / "call-paths.md").read_text(encoding="utf-8")
    [line] = re.findall(rf"^\*\*{way}\*\*: (.+)$", text, re.MULTILINE)
    return re.findall(r"`([\w.]+)`", line)


@contextmanager
def traced() -> Generator[list[str]]:
    """Record the functions of the package that this thread enters, each once, in order."""
    names: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            names[code.co_qualname] = None

    found: list[str] = []
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found += names


async def test_a_message_passes_few_functions_on_its_way_to_the_program(
    pubsub_server: ThreadedServer,
) -> None:
    token = pubsub_server.admin_token()
    with PubSub(token=token, **pubsub_server.options) as publisher:
        async with (
            PubSubClient(token=token, **pubsub_server.options) as ps,
            ps.subscribe("hops") as sub,
        ):

            async def publish(number: int) -> None:
                await asyncio.to_thread(publisher.publish, "hops", {"type": "t", "data": number})

            await publish(0)
            await anext(sub)
            with traced() as found:
                reading = asyncio.ensure_future(anext(sub))
                await asyncio.sleep(0)  # the program waits before the message arrives
                begun = sys.getprofile()
                sys.setprofile(None)
                published = asyncio.ensure_future(publish(1))
                sys.setprofile(begun)
                assert (await reading).data == 1
            await published
    way = [name for name in found if name not in WAITS]
    assert sorted(way) == sorted(shown("Receive, Python"))
    assert len(way) <= RECEIVE


async def test_a_publish_passes_the_shown_functions_until_it_is_written(
    pubsub_server: ThreadedServer,
) -> None:
    token = pubsub_server.admin_token()
    async with PubSubClient(token=token, **pubsub_server.options) as ps:
        await ps.publish("hops", {"type": "t", "data": 0})
        with traced() as found:
            await ps.publish("hops", {"type": "t", "data": {"n": 1, "text": "one"}})
    way = found[: found.index("WebsocketsConnection.write_all") + 1]
    # An id of another millisecond has another prefix, and a timer of the rate limit may be due.
    way = [name for name in way if not name.startswith(SOMETIMES)]
    assert way == shown("Publish, Python")
    assert len(way) <= PUBLISH
