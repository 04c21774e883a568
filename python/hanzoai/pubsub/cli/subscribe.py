"""`hanzo-pubsub subscribe`: prints messages as they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.cli.arguments import (
    Parser,
    connection_arguments,
    count,
    duration,
    moment,
    number,
    position,
    usage_error,
    via_argument,
)
from hanzoai.pubsub.cli.exits import REMOTE, Exit
from hanzoai.pubsub.cli.messages import (
    describe_gap,
    gap_to_json,
    parts,
    presence_to_json,
    to_json,
)
from hanzoai.pubsub.cli.output import Output, encode, json_line
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, connect, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import is_wildcard, matches, validate_pattern
from hanzoai.pubsub.values import Gap, PresenceChange

if TYPE_CHECKING:
    import asyncio
    from argparse import Namespace
    from collections.abc import Sequence

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.values import Message, StateChange


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    if args.via is not None:
        from hanzoai.pubsub.cli import events

        return events.subscribe(args)
    output = Output(as_json=args.json)
    try:
        for pattern in args.topics:
            validate_pattern(pattern)
    except InvalidTopic as error:
        output.error(error)
        return Exit.USAGE
    for topic, _ in args.after:
        if is_wildcard(topic):
            usage_error(
                f"--after names {topic}, a pattern; a position belongs to one topic.",
                remedy="Write --after once for each topic.",
            )
        if not any(matches(pattern, topic) for pattern in args.topics):
            usage_error(
                f"--after names {topic}, which is not subscribed to.",
                remedy="Use a topic that TOPIC names or matches.",
            )
    return run(output, args, lambda: _Reader(args, output).read())


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub subscribe`."""
    parser = Parser(
        "subscribe",
        "Print messages as they arrive: one JSON object per line, or with --count one JSON array at"
        " the end. After a lost connection, the command continues where it stopped. It reports"
        " messages that can no longer be delivered as a gap on standard error.",
        exits=REMOTE | {Exit.GAP},
        counts=True,
    )
    parser.add_argument(
        "topics",
        nargs="+",
        metavar="TOPIC",
        help="topic or pattern: * is one segment, ** one or more; quote patterns",
    )
    parser.add_argument("--count", type=count, metavar="N", help="exit after N messages")
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="replay from this time: 5m (ago), ISO 8601, or Unix ms",
    )
    parser.add_argument(
        "--history", type=number, metavar="N", help="replay the newest N messages of each topic"
    )
    parser.add_argument(
        "--after",
        type=position,
        action="append",
        default=[],
        metavar="TOPIC=SEQ",
        help="replay the messages after this position; can be repeated",
    )
    parser.add_argument("--presence", action="store_true", help="also print presence changes")
    parser.add_argument(
        "--raw", action="store_true", help="print only the data, and strings without quotes"
    )
    parser.add_argument(
        "--fail-on-gap", action="store_true", help="exit with 7 if messages were missed"
    )
    parser.add_argument(
        "--connect-timeout",
        type=duration,
        default=DEFAULT_TIMEOUT,
        metavar="TIME",
        help="timeout of the first connection; reconnects have no limit [default: 10s]",
    )
    via_argument(parser)
    connection_arguments(parser, timeout="exit after this time [default: never]")
    return parser


class _Reader:
    """One run of the command."""

    def __init__(self, args: Namespace, output: Output) -> None:
        self._args, self._output = args, output
        self._writer = Writer(output)
        self._collected: list[Message] = []
        self._received = self._gaps = 0

    async def read(self) -> int:
        ps = build_client(self._args, self._output, on_state=self._tell_state)
        reached: asyncio.Timeout | None = None
        try:
            reached = await connect(ps, self._args.connect_timeout, self._args.timeout)
            async with reached:
                await self._writer.until_reader_gone(self._consume(self._subscribe(ps)))
        except TimeoutError:
            if reached is None or not reached.expired():
                raise
        finally:
            await ps.close(0)
            if self._args.count is not None:
                await self._writer.write(self._array())
            if self._gaps:
                self._output.note(
                    "end",
                    f"{self._received:,} messages, {self._gaps:,} gaps",
                    received=self._received,
                    gaps=self._gaps,
                )
        if self._gaps and self._args.fail_on_gap:
            return Exit.GAP
        if self._args.count is not None and self._received < self._args.count:
            self._output.note(
                "timeout",
                f"{self._received:,} of {self._args.count:,} messages arrived in time",
                style="yellow",
            )
            return Exit.TIMEOUT
        return Exit.OK

    def _subscribe(self, ps: PubSubClient) -> Subscription:
        return ps.subscribe(
            self._args.topics,
            since=self._args.since,
            history=self._args.history,
            after=dict(self._args.after) or None,
            presence=self._args.presence,
        )

    async def _consume(self, subscription: Subscription) -> None:
        async with subscription:
            refused = {denial.topic for denial in subscription.denied}
            granted = [topic for topic in subscription.topics if topic not in refused]
            self._output.note("subscribed", " ".join(granted), topics=granted)
            for denial in subscription.denied:
                self._output.note(
                    "denied",
                    f"{denial.topic}: {denial.message or denial.code}",
                    style="yellow",
                    topic=denial.topic,
                    code=denial.code,
                )
            async for event in subscription.events():
                if isinstance(event, Gap):
                    self._tell_gap(event)
                elif isinstance(event, PresenceChange):
                    await self._tell_presence(event)
                else:
                    self._received += 1
                    await self._print(event)
                    if self._received == self._args.count:
                        return

    def _tell_gap(self, gap: Gap) -> None:
        self._gaps += 1
        self._output.note("gap", describe_gap(gap), style="yellow", **gap_to_json(gap))

    async def _print(self, message: Message) -> None:
        if self._args.count is not None:
            self._collected.append(message)
        elif self._args.raw:
            data = message.data if isinstance(message.data, str) else encode(message.data)
            await self._writer.write(data + "\n")
        elif self._output.pretty:
            self._output.line(*parts(message))
        else:
            await self._writer.record(to_json(message))

    def _array(self) -> str:
        values = [m.data if self._args.raw else to_json(m) for m in self._collected]
        if not self._output.pretty:
            return json_line(self._output.out, values)
        import json

        return json.dumps(values, ensure_ascii=True, indent=2) + "\n"

    async def _tell_presence(self, change: PresenceChange) -> None:
        if self._output.pretty:
            names = ", ".join(
                f"{member.name} ({member.status})" if member.status else member.name
                for member in change.members
            )
            self._output.line(
                (f"{change.topic} ", "cyan"), (f"{change.change} ", "magenta"), names or "no one"
            )
        elif self._args.count is None:
            await self._writer.record(presence_to_json(change))

    def _tell_state(self, change: StateChange) -> None:
        if change.to in {"reconnecting", "suspended"}:
            why = (change.reason or str(change.code or "connection lost")).rstrip(".")
            wait = "" if change.retry_in is None else f"; next attempt in {change.retry_in:.1f} s"
            known: dict[str, Any] = {
                "code": change.code,
                "retry_in": change.retry_in,
                "attempt": change.attempt,
            }
            self._output.note(
                "state",
                f"{change.to}: {why}{wait}",
                state=change.to,
                **{name: value for name, value in known.items() if value is not None},
            )
        elif change.to == "connected" and change.attempt:
            self._output.note("state", "reconnected", state=change.to)
