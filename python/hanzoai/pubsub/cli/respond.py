"""`hanzo-pubsub respond`: answers requests with fixed data, or with the output of a command."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.cli.arguments import (
    Parser,
    connection_arguments,
    count,
    duration,
    json_argument,
    number,
    short_text,
    usage_error,
)
from hanzoai.pubsub.cli.commands import Command
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.output import Output, encode
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, connect, notify, run
from hanzoai.pubsub.cli.stdio import OutputError
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.errors import PubSubError, ReplyError
from hanzoai.pubsub.runtime.arguments import pattern_list

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable, Sequence

    from hanzoai.pubsub.request_reply.responder import Responder
    from hanzoai.pubsub.values import Message


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    answer = _fixed(args.reply) if args.exec is None else _command(args.exec)
    return run(output, args, lambda: _Answerer(args, output, answer).serve())


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub respond`."""
    parser = Parser(
        "respond",
        "Answer each request of a topic with the same data, or with the output of a command. The"
        " command gets the data of the request as JSON on its standard input. Its output is the"
        " reply: JSON, or else a string. Print each answered request, one JSON object per line.",
        counts=True,
    )
    parser.add_argument(
        "topics",
        nargs="+",
        metavar="TOPIC",
        help="topic or pattern: * is one segment, ** one or more; quote patterns",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--reply", metavar="JSON|@FILE", help="data of every reply, or a file")
    what.add_argument(
        "--exec",
        metavar="COMMAND",
        help="run this command for each request, without a shell; for pipes, write sh -c '...'",
    )
    parser.add_argument(
        "--type",
        type=short_text,
        default="request",
        help="message type of requests [default: request]",
    )
    parser.add_argument(
        "--concurrency",
        type=number,
        default=10,
        metavar="N",
        help="requests that are handled at the same time, 1 to 1,000 [default: 10]",
    )
    parser.add_argument("--count", type=count, metavar="N", help="exit after N requests")
    parser.add_argument(
        "--connect-timeout",
        type=duration,
        default=DEFAULT_TIMEOUT,
        metavar="TIME",
        help="timeout of the first connection; reconnects have no limit [default: 10s]",
    )
    connection_arguments(parser, timeout="exit after this time [default: never]")
    return parser


def _fixed(text: str) -> Callable[[Message], Awaitable[Any]]:
    data = json_argument(text, "--reply")

    async def answer(_request: Message) -> Any:
        return data

    return answer


def _command(text: str) -> Callable[[Message], Awaitable[Any]]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        usage_error(f"--exec is not a command: {error}.", remedy="Check its quotes.")
    if not words:
        usage_error("--exec contains no command.", remedy="Write --exec 'jq .name'.")
    if shutil.which(words[0]) is None:
        usage_error(
            f"--exec names {words[0]!r}, which is not a program that you may run.",
            remedy="Check its name, its path and its permissions; for a command of the shell, "
            "write --exec \"sh -c '...'\".",
        )
    return Command(words).answer


class _Answerer:
    """One run of the command."""

    def __init__(
        self, args: Namespace, output: Output, answer: Callable[[Message], Awaitable[Any]]
    ) -> None:
        self._args, self._output, self._answer = args, output, answer
        self._writer = Writer(output)
        self._taken = self._answered = 0
        self._over = asyncio.Event()
        self._failure: Exception | None = None
        self._responder: Responder | None = None

    async def serve(self) -> int:
        pattern_list(self._args.topics)
        ps = build_client(self._args, self._output, on_error=self._report)
        reached: asyncio.Timeout | None = None
        try:
            reached = await connect(ps, self._args.connect_timeout, self._args.timeout)
            async with reached:
                self._responder = ps.respond(
                    self._args.topics,
                    self._handle,
                    type=self._args.type,
                    concurrency=self._args.concurrency,
                )
                async with self._responder:
                    topics = self._args.topics
                    self._output.note("subscribed", " ".join(topics), topics=topics)
                    await self._writer.until_reader_gone(self._over.wait())
        except TimeoutError:
            if reached is None or not reached.expired():
                raise
        finally:
            await ps.close()
        if self._failure is not None:
            raise self._failure
        if self._args.count is not None and self._answered < self._args.count:
            self._output.note(
                "timeout",
                f"{self._answered:,} of {self._args.count:,} requests arrived in time",
                style="yellow",
            )
            return Exit.TIMEOUT
        return Exit.OK

    async def _handle(self, request: Message) -> Any:
        if self._taken == self._args.count:
            # The program is about to exit, so leave a request without a reply to another responder.
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        self._taken += 1
        try:
            data = await self._answer(request)
        except ReplyError as error:
            await self._print(request, {"error": {"code": error.code, "message": error.message}})
            raise
        await self._print(request, {"reply": data})
        return data

    async def _print(self, request: Message, outcome: dict[str, Any]) -> None:
        sender = request.sender
        record = {
            "id": request.id,
            "topic": request.topic,
            "sender": None if sender is None else sender.id,
            "request": request.data,
            **outcome,
        }
        if self._output.pretty:
            name, value = next(iter(outcome.items()))
            self._output.line(
                (f"{request.topic} ", "cyan"),
                encode(request.data),
                (f" {name} ", "green" if name == "reply" else "red"),
                encode(value),
            )
        else:
            try:
                await self._writer.record(record)
            except OutputError as error:
                self._failure = error
                self._over.set()
        self._answered += 1
        if self._answered == self._args.count:
            self._over.set()

    def _report(self, error: Exception) -> None:
        responder = self._responder
        if isinstance(error, PubSubError) and responder is not None and not responder.active:
            # The subscription has ended, so no more requests arrive.
            self._failure = error
            self._over.set()
        else:
            notify(self._output, error)
