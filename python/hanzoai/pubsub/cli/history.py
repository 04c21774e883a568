"""`hanzo-pubsub history`: retained messages of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.cli.arguments import (
    Parser,
    connection_arguments,
    count,
    moment,
    number,
    usage_error,
)
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.messages import parts, to_json
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.errors import InvalidOption

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from hanzoai.pubsub.client import PubSubClient


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    if args.before == "":
        usage_error(
            "--before is empty.", remedy="Write the id of a message, or leave out --before."
        )
    output = Output(as_json=args.json)
    return run(output, args, lambda: _print(args, output))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub history`."""
    parser = Parser("history", "Print retained messages of one topic, oldest first.")
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only newer messages: 5m (ago), ISO 8601, or Unix ms",
    )
    parser.add_argument(
        "--limit",
        type=count,
        metavar="N",
        help="maximum number: the newest N, or with --after the first N [default: all]",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--before", metavar="ID", help="only messages older than the one with this id"
    )
    place.add_argument(
        "--before-seq", type=number, metavar="SEQ", help="only messages before this position"
    )
    place.add_argument(
        "--after", type=number, metavar="SEQ", help="only messages after this position"
    )
    connection_arguments(parser, timeout="timeout of each page [default: 10s]")
    return parser


async def _print(args: Namespace, output: Output) -> int:
    ps = build_client(args, output)
    writer = Writer(output)
    empty = True
    try:
        async for message in ps.history(
            args.topic,
            since=args.since,
            before=args.before if args.before_seq is None else args.before_seq,
            after=args.after,
            limit=args.limit,
            timeout=args.timeout or DEFAULT_TIMEOUT,
        ):
            empty = False
            if output.pretty:
                output.line(*parts(message))
            else:
                await writer.record(to_json(message))
        if empty and args.before is not None:
            await _check_before(ps, args)
    finally:
        await ps.close(0)
    if empty and output.pretty:
        output.line("no messages")
    return Exit.OK


async def _check_before(ps: PubSubClient, args: Namespace) -> None:
    """Reject an id that no retained message has: for it, the server returns no messages.

    It returns none before the oldest message, either.
    """
    timeout = args.timeout or DEFAULT_TIMEOUT
    async for _ in ps.history(args.topic, before=args.before, limit=1, timeout=timeout):
        return
    async for oldest in ps.history(args.topic, after=0, limit=1, timeout=timeout):
        # A server without positions ignores `after`, and this message is not its oldest.
        if oldest.seq is None or oldest.id == args.before:
            return
    raise InvalidOption(
        f"--before is {args.before!r}, and no message in the history of {args.topic} has this id.",
        remedy=f"Write the `id` of a message that `hanzo-pubsub history {args.topic}` prints.",
        field="before",
    )
