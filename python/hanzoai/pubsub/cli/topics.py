"""`hanzo-pubsub topics`: the active topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.cli.arguments import Parser, connection_arguments, count
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.output import Output, Part
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, run

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    return run(output, args, lambda: _print(args, output))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub topics`."""
    parser = Parser("topics", "List active topics. This requires the token of an administrator.")
    parser.add_argument("--prefix", help="only names that start with this text")
    parser.add_argument(
        "--limit",
        type=count,
        metavar="N",
        help="maximum number of topics, 1 to 1000 [default: 100]; if you get this many, "
        "there may be more",
    )
    connection_arguments(parser, timeout="timeout of the request [default: 10s]")
    return parser


async def _print(args: Namespace, output: Output) -> int:
    ps = build_client(args, output)
    try:
        found = await ps.topics(
            args.prefix, limit=args.limit, timeout=args.timeout or DEFAULT_TIMEOUT
        )
    finally:
        await ps.close(0)
    if not output.pretty:
        for info in found:
            output.record(info.model_dump(mode="json", exclude_none=True))
    elif found:
        rows: list[list[Part]] = [
            [(info.topic, "cyan"), f"{info.subscribers:,}", f"{info.messages:,}"] for info in found
        ]
        output.table(("topic", "subscribers", "messages"), rows)
    else:
        output.line("no active topics")
    return Exit.OK
