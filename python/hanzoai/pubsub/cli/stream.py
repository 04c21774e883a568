"""`hanzo-pubsub stream`: prints an answer as it grows, or publishes standard input as one."""

from __future__ import annotations

import codecs
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import Parser, connection_arguments, usage_error
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.lines import binary_input, read_chunks
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.streams import (
    Aborted,
    Delta,
    Done,
    Gap,
    Snapshot,
    Stalled,
    StreamEvent,
    StreamReader,
    StreamWriter,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from hanzoai.pubsub.client import PubSubClient

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters, which could move the cursor of a terminal, or worse."""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    if args.id == "":
        usage_error("--id is empty.", remedy="Write the id of a stream, or leave out --id.")
    output = Output(as_json=args.json)
    return run(output, args, lambda: _stream(args, output))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub stream`."""
    parser = Parser(
        "stream",
        "Print a token stream while it grows: the text on a terminal and with --raw, otherwise one"
        " JSON event per line. If the topic has no stream, wait for the next one. With --write,"
        " publish standard input as a stream. The exit code is 1 if the stream ends before the"
        " answer is complete.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    parser.add_argument("--write", action="store_true", help="publish standard input as a stream")
    parser.add_argument("--raw", action="store_true", help="print only the text")
    parser.add_argument(
        "--id",
        help="stream to read: latest, next or an id [default: latest]; with --write, the id of the "
        "new stream [default: random]",
    )
    connection_arguments(parser, timeout="timeout of the first connection [default: 10s]")
    return parser


async def _stream(args: Namespace, output: Output) -> int:
    ps = build_client(args, output)
    try:
        # The writer and the reader check the arguments before the client connects.
        work = (_write if args.write else _read)(ps, args, output)
        await ps.connect(args.timeout or DEFAULT_TIMEOUT)
        return await work()
    finally:
        await ps.close(None if args.write else 0)


def _write(ps: PubSubClient, args: Namespace, output: Output) -> Callable[[], Awaitable[int]]:
    writer = StreamWriter(ps, args.topic, id=args.id)
    return lambda: _publish(writer, output)


async def _publish(writer: StreamWriter, output: Output) -> int:
    async with writer:
        await writer.pipe(_input())
    if writer.cancelled:
        output.note("cancelled", "a reader cancelled the stream", id=writer.id)
        return Exit.FAILED
    return Exit.OK


async def _input() -> AsyncIterator[str]:
    """Standard input as it arrives, in whole characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for chunk in read_chunks(binary_input(sys.stdin)):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _read(ps: PubSubClient, args: Namespace, output: Output) -> Callable[[], Awaitable[int]]:
    def subscribed() -> None:
        output.note("subscribed", args.topic, topics=[args.topic])

    reader = StreamReader(ps, args.topic, id=args.id or "latest", on_subscribed=subscribed)
    return lambda: _print(reader, args, output)


async def _print(reader: StreamReader, args: Namespace, output: Output) -> int:
    out = Writer(output)
    bare = args.raw or output.pretty
    shown = ""
    async with reader:
        async for event in reader:
            if not bare:
                await out.record(_json(event))
                continue
            text = ""
            if isinstance(event, Delta):
                text = event.text
                shown += text
            elif isinstance(event, Snapshot | Done | Aborted):
                # A terminal cannot remove text, so the text that differs is printed again.
                same = event.text.startswith(shown)
                text = event.text.removeprefix(shown) if same else f"\n{event.text}"
                shown = event.text
            elif isinstance(event, Gap):
                output.note("gap", f"tokens {event.first} to {event.last} are missing")
            elif isinstance(event, Stalled):
                output.note("stalled", f"no tokens for {event.seconds:.0f} s")
            await out.write(text if args.raw else _CONTROL.sub("", text))
        final = await reader.final()
    printed = shown if args.raw else _CONTROL.sub("", shown)
    if bare and not printed.endswith("\n"):
        await out.write("\n")
    if final.status == "aborted":
        output.note("aborted", f"the stream was aborted: {final.reason}", reason=final.reason)
        return Exit.FAILED
    return Exit.OK


def _json(event: StreamEvent) -> dict[str, Any]:
    return {"event": type(event).__name__.lower(), **asdict(event)}
