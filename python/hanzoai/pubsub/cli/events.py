"""`publish` and `subscribe` with `--via`: the event stream instead of HIP-56."""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.cli.arguments import read_file, usage_error
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.lines import binary_input
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.eventstream.client import EventStreamClient

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from hanzoai.pubsub.eventstream.client import Event, EventSubscription


def subscribe(args: Namespace) -> int:
    """Print events: one object with `--count`, else one JSON value per line."""
    _refuse(args, ("since", "history", "after", "presence", "raw", "fail_on_gap"))
    if len(args.topics) != 1:
        usage_error(
            "--via takes one topic.", remedy="Name one topic, or '*' for all; quote the star."
        )
    output = Output(as_json=args.json)
    return run(output, args, lambda: _Reader(args, output).read())


def publish(args: Namespace) -> int:
    """Publish one event and print its target, topic and size."""
    _refuse(args, ("type", "id", "ttl"))
    body = _body(args.data)
    output = Output(as_json=args.json)

    async def work() -> int:
        timeout = args.timeout or DEFAULT_TIMEOUT
        async with EventStreamClient(args.via, connect_timeout=timeout) as client:
            size = await client.publish(args.topic, body, timeout=timeout)
        # Closing the client reports a server of another protocol.
        output.record({"target": client.target, "topic": args.topic, "bytes": size})
        return Exit.OK

    return run(output, args, work)


def to_json(event: Event) -> dict[str, Any]:
    """An event for output; a payload that is not UTF-8 is `{"$base64": …}`."""
    try:
        data: Any = event.data.decode()
    except UnicodeDecodeError:
        data = {"$base64": base64.b64encode(event.data).decode()}
    topic = event.topic.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return {"topic": topic, "data": data, "bytes": len(event.data)}


def _refuse(args: Namespace, names: Sequence[str]) -> None:
    for name in names:
        if getattr(args, name) not in (None, False, []):
            option = "--" + name.replace("_", "-")
            usage_error(
                f"{option} cannot be used with --via: the event stream protocol does not "
                "support it.",
                remedy=f"Leave out {option} or --via.",
            )


def _body(text: str) -> bytes:
    if text == "-":
        return binary_input(sys.stdin).read()
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    return read_file(text[1:], "--data")


class _Reader:
    """One run of `subscribe --via`."""

    def __init__(self, args: Namespace, output: Output) -> None:
        self._args = args
        self._output = output
        self._writer = Writer(output)
        self._collected: list[Event] = []

    async def read(self) -> int:
        async with EventStreamClient(
            self._args.via, connect_timeout=self._args.connect_timeout
        ) as client:
            events = client.subscribe(self._args.topics[0])
            await events.open()
            self._output.note(
                "subscribed", f"{events.topic} at {client.target}", topics=[events.topic]
            )
            reading = asyncio.ensure_future(self._consume(events))
            reached = asyncio.timeout(self._args.timeout)
            try:
                async with reached:
                    await self._writer.until_reader_gone(reading)
            except TimeoutError:
                if not reached.expired():
                    raise
            finally:
                complete = not reading.cancelled()
                if self._args.count is not None:
                    listed = [to_json(event) for event in self._collected]
                    await self._writer.record({"events": listed, "timeout": not complete})
        if self._args.count is not None and not complete:
            return Exit.TIMEOUT
        return Exit.OK

    async def _consume(self, events: EventSubscription) -> None:
        reconnects = 0
        async for event in events:
            if events.reconnects > reconnects:
                reconnects = events.reconnects
                self._output.note(
                    "state",
                    "reconnected; events that were published in the meantime are lost",
                    state="connected",
                )
            if self._args.count is None:
                await self._writer.record(to_json(event))
                continue
            self._collected.append(event)
            if len(self._collected) == self._args.count:
                return
