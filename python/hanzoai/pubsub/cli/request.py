"""`hanzo-pubsub request`: one request and its reply, or one request per line of standard input."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import (
    FILE_MAX,
    Parser,
    connection_arguments,
    json_argument,
    short_text,
    usage_error,
)
from hanzoai.pubsub.cli.exits import Exit, exit_for
from hanzoai.pubsub.cli.lines import binary_input, is_terminal, line_value, read_lines
from hanzoai.pubsub.cli.messages import parts, to_json
from hanzoai.pubsub.cli.output import Output, encode
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.errors import PubSubError
from hanzoai.pubsub.request_reply.messages import check_request_id
from hanzoai.pubsub.runtime.publisher import prepare
from hanzoai.pubsub.topics import validate_topic

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.values import Message

IN_FLIGHT: Final = 10
"""Maximum requests of standard input that wait for their replies."""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    if args.data is None and not is_terminal(sys.stdin):
        args.data = "-"
    if args.data is None:
        usage_error("The request has no data.", remedy="Pass JSON, @FILE or - after the topic.")
    if args.data == "-":
        if args.id is not None:
            usage_error("--id applies to one request.", remedy="Pass DATA instead of -.")
        return run(output, args, lambda: _Asker(args, output).ask_lines())
    data = json_argument(args.data, "DATA")
    return run(output, args, lambda: _Asker(args, output).ask_once(data))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub request`."""
    parser = Parser(
        "request",
        "Publish a request to a topic, wait for the reply, and print it. With - as DATA, read one"
        " JSON value per line, publish each as a request, and print the replies in the order of"
        f" the lines. Up to {IN_FLIGHT} requests wait at the same time.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="JSON, @FILE for a file with JSON, or - for lines from standard input [default: - "
        "if standard input is not a terminal]",
    )
    parser.add_argument(
        "--type",
        type=short_text,
        default="request",
        help="message type of the request [default: request]",
    )
    parser.add_argument(
        "--id",
        type=short_text,
        help="id of the request; a retry with the same id does not repeat the work",
    )
    parser.add_argument(
        "--reply-to", metavar="TOPIC", help="topic of the reply [default: below the topic]"
    )
    parser.add_argument(
        "--raw", action="store_true", help="print only the data, and strings without quotes"
    )
    connection_arguments(parser, timeout="timeout of each reply [default: 10s]")
    return parser


class _Asker:
    """One run of the command."""

    def __init__(self, args: Namespace, output: Output) -> None:
        self._args, self._output = args, output
        self._timeout: float = args.timeout or DEFAULT_TIMEOUT
        self._writer = Writer(output)
        self._worst: Exit | None = None

    async def ask_once(self, data: Any) -> int:
        self._check(data)
        ps = build_client(self._args, self._output)
        try:
            await ps.connect(self._timeout)
            await self._print(await self._request(ps, data))
        finally:
            await ps.close(0)
        return Exit.OK

    async def ask_lines(self) -> int:
        self._check(None)
        ps = build_client(self._args, self._output)
        waiting: deque[tuple[int, asyncio.Task[Message]]] = deque()
        line_number = 0
        try:
            await ps.connect(self._timeout)
            async for line in read_lines(binary_input(sys.stdin)):
                line_number += 1
                if not line.strip():
                    continue
                while waiting and (len(waiting) >= IN_FLIGHT or waiting[0][1].done()):
                    await self._print_result(*waiting.popleft())
                waiting.append((line_number, asyncio.create_task(self._request_line(ps, line))))
            while waiting:
                await self._print_result(*waiting.popleft())
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
            await ps.close(0)
        return self._worst or Exit.OK

    def _check(self, data: Any) -> None:
        """Check what needs no server.

        Raises:
            PubSubError: An argument is not valid.
        """
        args = self._args
        prepare(args.topic, {"type": args.type, "data": data}, FILE_MAX)
        if args.id is not None:
            check_request_id(args.id)
        if args.reply_to is not None:
            validate_topic(args.reply_to)

    async def _request_line(self, ps: PubSubClient, line: bytes) -> Message:
        return await self._request(ps, line_value(line))

    async def _print_result(self, line: int, task: asyncio.Task[Message]) -> None:
        try:
            await self._print(await task)
        except PubSubError as error:
            self._output.error(error, line=line)
            self._worst = max(self._worst or Exit.FAILED, exit_for(error))

    async def _request(self, ps: PubSubClient, data: Any) -> Message:
        return await ps.request(
            self._args.topic,
            data,
            type=self._args.type,
            timeout=self._timeout,
            id=self._args.id,
            reply_to=self._args.reply_to,
        )

    async def _print(self, reply: Message) -> None:
        if self._args.raw:
            text = reply.data if isinstance(reply.data, str) else encode(reply.data)
            await self._writer.write(text + "\n")
        elif self._output.pretty:
            self._output.line(*parts(reply))
        else:
            await self._writer.record(to_json(reply))
