"""`hanzo-pubsub publish`: one message, or a stream of them from standard input."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import (
    Parser,
    connection_arguments,
    json_argument,
    number,
    parse_json,
    usage_error,
    via_argument,
)
from hanzoai.pubsub.cli.exits import Exit, exit_for
from hanzoai.pubsub.cli.lines import binary_input, is_terminal, read_lines
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, run
from hanzoai.pubsub.errors import InvalidPayload, PubSubError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.values import Published

IN_FLIGHT: Final = 256
"""Maximum messages that wait for their answer."""
FIELDS: Final = frozenset({"type", "data", "ttl", "id", "meta"})
_DATA: Final = "Pass --data JSON, --data @FILE or --data -."
_HOPELESS: Final = frozenset({Exit.AUTH, Exit.FORBIDDEN, Exit.CONNECTION})
"""Errors that would also occur for the next line."""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    output = Output(as_json=args.json)
    if args.bare is not None:
        usage_error("The data is not after --data.", remedy=_DATA)
    if args.data is None and not is_terminal(sys.stdin):
        args.data = "-"
    if args.data is None:
        usage_error("Nothing to publish.", remedy=_DATA)
    if args.via is not None:
        from hanzoai.pubsub.cli import events

        return events.publish(args)
    if args.data == "-":
        if args.id is not None:
            usage_error("--id names one message.", remedy='With --data - put "id" into each line.')
        return run(output, args, lambda: _publish_lines(args, output))
    message = _single(args)
    return run(output, args, lambda: _publish_one(args, output, message))


def _parser() -> Parser:
    parser = Parser(
        "publish",
        "Publish to a topic. The command exits when the server has the message. With --data -,"
        '\nit reads one JSON object per line: {"type": ..., "data": ..., "id": ..., "ttl": ...}.'
        "\nWith --type, each line is only the data. The command publishes the lines in order.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    # Only for the error: the data without --data is a likely mistake.
    parser.add_argument("bare", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument(
        "--data", metavar="JSON|@FILE|-", help="data, a file with it, or lines from standard input"
    )
    parser.add_argument("--type", help="type of the message [default: message]")
    parser.add_argument("--id", help="message id; the server publishes an id once")
    parser.add_argument(
        "--ttl", type=number, metavar="SECONDS", help="time in history; 0 stores nothing"
    )
    parser.add_argument(
        "--on-error",
        choices=("continue", "stop"),
        default="continue",
        help="what to do after an invalid or rejected line [default: continue]",
    )
    via_argument(parser)
    connection_arguments(parser, timeout="timeout of each message [default: 10s]")
    return parser


def _single(args: Namespace) -> dict[str, Any]:
    return _message({"data": json_argument(args.data, "--data")}, args)


def _message(found: dict[str, Any], args: Namespace) -> dict[str, Any]:
    defaults = {"type": args.type or "message", "ttl": args.ttl, "id": args.id}
    return {name: value for name, value in defaults.items() if value is not None} | found


def parse_line(line: bytes, args: Namespace) -> dict[str, Any]:
    """One line of standard input as a message.

    Raises:
        InvalidPayload: Describes the problem without the line itself.
    """
    try:
        found = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidPayload("The line is not UTF-8 text.") from None
    except ValueError as error:
        raise InvalidPayload(
            f"The line is {error}.", remedy="Write one JSON value per line."
        ) from None
    if args.type is not None:
        return _message({"data": found}, args)
    if not isinstance(found, dict) or "data" not in found:
        raise InvalidPayload(
            'The line is not an object with "data".',
            remedy="Pass --type to publish each line as the data of a message.",
        )
    unknown = sorted(str(name) for name in found.keys() - FIELDS)  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType,reportUnknownVariableType]
    if unknown:
        raise InvalidPayload(
            f"The line has unknown fields: {', '.join(unknown[:5])[:80]}.",
            remedy="A message has type, data, ttl, id and meta.",
        )
    return _message(found, args)  # pyright: ignore[reportUnknownArgumentType]


async def _publish_one(args: Namespace, output: Output, message: dict[str, Any]) -> int:
    ps = build_client(args, output)
    try:
        timeout = args.timeout or DEFAULT_TIMEOUT
        await ps.connect(timeout)
        published = await ps.publish(args.topic, message, timeout=timeout)
    finally:
        await ps.close()
    if output.pretty:
        where = "" if published.seq is None else f" at {published.seq}"
        again = " (a repeat: it was published before)" if published.duplicate else ""
        output.line(("✓ ", "green"), f"{published.id}{where}{again}")
    else:
        output.record({k: v for k, v in asdict(published).items() if v is not None})
    return Exit.OK


class _Tally:
    """The results of the lines so far."""

    def __init__(self, output: Output, *, stop: bool) -> None:
        self.published = self.duplicates = self.failed = 0
        self.worst: Exit | None = None
        self._over = False
        self._output, self._stop = output, stop

    def settle(self, published: Published) -> None:
        if published.duplicate:
            self.duplicates += 1
        else:
            self.published += 1

    def fail(self, line: int, error: PubSubError) -> None:
        self.failed += 1
        code = exit_for(error)
        if not self._over:
            self._output.error(error, line=line)
        if code in _HOPELESS:
            self.worst = code
        if self._stop or code in _HOPELESS:
            self._over = True

    def over(self) -> bool:
        """Whether to stop reading lines."""
        return self._over

    @property
    def exit(self) -> Exit:
        return self.worst or (Exit.FAILED if self.failed else Exit.OK)


async def _publish_lines(args: Namespace, output: Output) -> int:
    from hanzoai.pubsub.settings.options import SendQueue

    ps = build_client(args, output, send_queue=SendQueue(policy="block"))
    tally = _Tally(output, stop=args.on_error == "stop")
    slots = asyncio.Semaphore(IN_FLIGHT)
    timeout = args.timeout or DEFAULT_TIMEOUT
    try:
        await ps.connect(timeout)
        async with asyncio.TaskGroup() as group:
            line_number = 0
            async for line in read_lines(binary_input(sys.stdin)):
                line_number += 1
                if not line.strip():
                    continue
                await slots.acquire()
                if tally.over():
                    break
                try:
                    message = parse_line(line, args)
                except InvalidPayload as error:
                    slots.release()
                    tally.fail(line_number, error)
                    continue
                group.create_task(
                    _publish_line(ps, args.topic, message, timeout, line_number, tally, slots)
                )
    finally:
        await ps.close()
        counts = {
            "published": tally.published,
            "duplicates": tally.duplicates,
            "failed": tally.failed,
        }
        if output.pretty:
            output.line("  ".join(f"{name} {value:,}" for name, value in counts.items()))
        else:
            output.record(counts)
    return tally.exit


async def _publish_line(
    ps: PubSubClient,
    topic: str,
    message: dict[str, Any],
    timeout: float,
    line: int,
    tally: _Tally,
    slots: asyncio.Semaphore,
) -> None:
    try:
        tally.settle(await ps.publish(topic, message, timeout=timeout))
    except PubSubError as error:
        tally.fail(line, error)
    finally:
        slots.release()
