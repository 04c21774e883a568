"""`hanzo-pubsub publish`: one message, or a stream of them from standard input."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import (
    FILE_MAX,
    Parser,
    connection_arguments,
    json_argument,
    short_text,
    usage_error,
    via_argument,
    whole_seconds,
)
from hanzoai.pubsub.cli.exits import Exit, exit_for
from hanzoai.pubsub.cli.lines import binary_input, is_terminal, line_value, read_lines
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, notify, report, run
from hanzoai.pubsub.errors import InvalidPayload, OperationTimeout, PubSubError
from hanzoai.pubsub.runtime.publisher import prepare

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


IN_FLIGHT: Final = 256
"""Maximum messages that wait for their answer."""
PROGRESS: Final = 1.0
"""Seconds between two updates of the counts on a terminal."""
FIELDS: Final = frozenset({"type", "data", "ttl", "id", "meta"})
_DATA: Final = "Pass --data JSON, --data @FILE or --data -."
_HOPELESS: Final = frozenset({Exit.AUTH, Exit.FORBIDDEN, Exit.CONNECTION})
"""Errors that would also occur for the next line."""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    if args.bare is not None:
        usage_error("Data must follow --data.", remedy=_DATA)
    if args.data is None and not is_terminal(sys.stdin):
        args.data = "-"
    if args.data is None:
        usage_error("Nothing to publish.", remedy=_DATA)
    if args.via is not None:
        from hanzoai.pubsub.cli import events

        return events.publish(args)
    if args.data == "-":
        if args.id is not None:
            usage_error(
                "--id applies to one message.", remedy='With --data - put "id" into each line.'
            )
        return run(output, args, lambda: _publish_lines(args, output))
    message = _single(args)
    return run(output, args, lambda: _publish_one(args, output, message))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub publish`."""
    parser = Parser(
        "publish",
        "Publish to a topic. The command exits when the server has the message. With --data -,"
        ' it reads one JSON object per line, {"type", "data", "id", "ttl", "meta"}; only "data" is'
        " required. With --type, each line is only the data. The command publishes the lines in"
        " order, and prints how many are published, duplicates, failed or unknown. An unknown line"
        " may have been published: its answer did not arrive.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    # Only for the error: the data without --data is a likely mistake.
    parser.add_argument("bare", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument(
        "--data",
        metavar="JSON|@FILE|-",
        help="data, a file with it, or lines from standard input [default: - if standard input is "
        "not a terminal]",
    )
    parser.add_argument("--type", type=short_text, help="type of the message [default: message]")
    parser.add_argument("--id", type=short_text, help="message id; the server publishes an id once")
    parser.add_argument(
        "--ttl",
        type=whole_seconds,
        metavar="TIME",
        help="time in history, in whole seconds; 0 stores nothing",
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
    type_ = "message" if args.type is None else args.type
    defaults = {"type": type_, "ttl": args.ttl, "id": args.id}
    return {name: value for name, value in defaults.items() if value is not None} | found


def parse_line(line: bytes, args: Namespace) -> dict[str, Any]:
    """One line of standard input as a message.

    Raises:
        InvalidPayload: Describes the problem without the line itself.
    """
    found = line_value(line)
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


def in_flight(rate: int | None, timeout: float) -> int:
    """How many messages may wait at once, so that none waits longer than a part of its timeout.

    Args:
        rate: Messages per second that the server allows, if it states a rate.
        timeout: Timeout of each message, in seconds.
    """
    # A quarter: over HTTP, other programs of the user share the rate.
    return max(1, min(IN_FLIGHT, int(rate * timeout / 4))) if rate else IN_FLIGHT


async def _publish_one(args: Namespace, output: Output, message: dict[str, Any]) -> int:
    prepare(args.topic, message, FILE_MAX)
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


class _Lines:
    """Publishes the lines of standard input in order, and counts their results.

    Attributes:
        failed: Lines that were not published.
        unknown: Lines that may have been published: they were sent, but no answer arrived.
        worst: The exit code of an error that also the next line would get.
    """

    COUNTS: Final = ("published", "duplicates", "failed", "unknown")

    def __init__(self, args: Namespace, output: Output) -> None:
        from hanzoai.pubsub.settings.options import SendQueue

        self.published = self.duplicates = self.failed = self.unknown = 0
        self.worst: Exit | None = None
        self._args, self._output = args, output
        self._timeout: float = args.timeout or DEFAULT_TIMEOUT
        self._over = False
        self._slots: asyncio.Semaphore
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        queue = SendQueue(policy="block")
        self._ps = build_client(args, output, send_queue=queue, on_error=self._notify)

    async def run(self) -> None:
        """Publish all lines.

        Raises:
            PubSubError: There is no connection.
        """
        try:
            await self._ps.connect(self._timeout)
            rate = None if self._ps.limits is None else self._ps.limits.publish_rate
            self._slots = asyncio.Semaphore(in_flight(rate, self._timeout))
            working = asyncio.create_task(self._work())
            showing = asyncio.create_task(self._show())
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError:
                self._end()
                await working
                raise
            finally:
                showing.cancel()
        finally:
            await self._ps.close()

    def counts(self) -> dict[str, int]:
        """How many lines have each result."""
        return {name: getattr(self, name) for name in self.COUNTS}

    async def _show(self) -> None:
        if sys.stdin.isatty() or self._args.verbose:
            return  # the same line has what the user types, or the log
        while True:
            await asyncio.sleep(PROGRESS)
            self._output.progress(_summary(self.counts()))

    async def _work(self) -> None:
        if self._over:
            return
        async with asyncio.TaskGroup() as group:
            self._reading = group.create_task(self._read(group))

    def _end(self) -> None:
        """Read no more lines, and end those that wait: the client knows which it has sent."""
        self._over = True
        if self._reading is not None:
            self._reading.cancel()
        self._closing = asyncio.create_task(self._ps.close(0))

    async def _read(self, group: asyncio.TaskGroup) -> None:
        number = 0
        async for line in read_lines(binary_input(sys.stdin)):
            number += 1
            if not line.strip():
                continue
            await self._slots.acquire()
            if self._over:
                return
            try:
                message = parse_line(line, self._args)
            except InvalidPayload as error:
                self._slots.release()
                self._fail(number, error)
                continue
            group.create_task(self._publish(number, message))

    async def _publish(self, number: int, message: dict[str, Any]) -> None:
        try:
            published = await self._ps.publish(self._args.topic, message, timeout=self._timeout)
            if published.duplicate:
                self.duplicates += 1
            else:
                self.published += 1
        except PubSubError as error:
            self._fail(number, error)
        finally:
            self._slots.release()

    def _fail(self, number: int, error: PubSubError) -> None:
        if isinstance(error, OperationTimeout) and error.outcome_unknown:
            self.unknown += 1
        else:
            self.failed += 1
        self._report(error, number)
        code = exit_for(error)
        if code in _HOPELESS and self.worst is None:
            self.worst = code
            self._end()
        elif self._args.on_error == "stop" and self._reading is not None:
            self._over = True
            self._reading.cancel()

    def _report(self, error: Exception, line: int) -> None:
        """Print the error of a line, unless an earlier one has ended the command."""
        if not self._over:
            report(self._output, error, line=line)

    def _notify(self, error: Exception) -> None:
        if not self._over:
            notify(self._output, error)


async def _publish_lines(args: Namespace, output: Output) -> int:
    prepare(args.topic, _message({"data": None}, args), FILE_MAX)
    lines = _Lines(args, output)
    try:
        await lines.run()
    finally:
        if output.pretty:
            output.line(_summary(lines.counts()))
        else:
            output.record(lines.counts())
    return lines.worst or (Exit.FAILED if lines.failed or lines.unknown else Exit.OK)


def _summary(counts: dict[str, int]) -> str:
    return "  ".join(f"{name} {value:,}" for name, value in counts.items())
