"""`hanzo-pubsub presence`: the members of a topic, once or continuously."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.cli.arguments import Parser, connection_arguments
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.messages import MEMBER_COLUMNS, member_row, member_to_json
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import DEFAULT_TIMEOUT, build_client, connect, run
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.values import PresenceChange

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.values import PresenceMember


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    return run(output, args, lambda: _print(args, output))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub presence`."""
    parser = Parser(
        "presence",
        "Print the members of a topic, one JSON object per line. With --watch, also print changes:"
        ' {"change": "join", "member": {...}}. While it watches, the command is itself a member'
        " that others see. It leaves itself out of its output.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic without wildcards")
    parser.add_argument("--watch", action="store_true", help="print changes until interrupted")
    connection_arguments(
        parser,
        timeout="timeout [default: 10s]; with --watch, exit after this time [default: never]",
    )
    return parser


async def _print(args: Namespace, output: Output) -> int:
    validate_topic(args.topic)
    ps = build_client(args, output)
    try:
        if args.watch:
            await _watch(ps, args, output)
        else:
            _list(await ps.presence(args.topic, timeout=args.timeout or DEFAULT_TIMEOUT), output)
    finally:
        await ps.close(0)
    return Exit.OK


def _list(members: Iterable[PresenceMember], output: Output) -> None:
    if output.pretty:
        rows = [member_row(member) for member in members]
        if rows:
            output.table(MEMBER_COLUMNS, rows)
        else:
            output.line("no members")
        return
    for member in members:
        output.record(member_to_json(member))


async def _watch(ps: PubSubClient, args: Namespace, output: Output) -> None:
    reached = await connect(ps, DEFAULT_TIMEOUT, args.timeout)
    writer = Writer(output)
    known: dict[str, PresenceMember] = {}
    own: set[str | None] = set()  # a reopened event stream is a new member
    subscription = ps.subscribe(args.topic, presence=True)
    try:
        async with reached, subscription:
            async for event in subscription.events():
                if not isinstance(event, PresenceChange):
                    continue
                own.add(ps.client_id)
                present = {m.client_id: m for m in event.members if m.client_id not in own}
                for change, member in differences(known, present):
                    if output.pretty:
                        status = f" ({member.status})" if member.status else ""
                        output.line((f"{change:<8}", "magenta"), (member.name, "bold"), status)
                    else:
                        line = {"change": change, "topic": event.topic}
                        await writer.record({**line, "member": member_to_json(member)})
                known = present
    except TimeoutError:
        if not reached.expired():
            raise


def differences(
    before: dict[str, PresenceMember], after: dict[str, PresenceMember]
) -> list[tuple[str, PresenceMember]]:
    """Members that joined, changed or left between two states, by client id.

    A user joins with the first connection and leaves with the last one; the others connect and
    disconnect.
    """
    changes: list[tuple[str, PresenceMember]] = []
    users = {member.user_id for member in before.values()}
    for client_id, member in after.items():
        old = before.get(client_id)
        if old is None:
            changes.append(("connect" if member.user_id in users else "join", member))
        elif _appearance(old) != _appearance(member):
            changes.append(("update", member))
        users.add(member.user_id)
    gone = [member for client_id, member in before.items() if client_id not in after]
    left = [member.user_id for member in after.values()] + [member.user_id for member in gone]
    for member in gone:
        left.remove(member.user_id)
        changes.append(("disconnect" if member.user_id in left else "leave", member))
    return changes


def _appearance(member: PresenceMember) -> tuple[object, ...]:
    """The visible state of a member, without `last_seen`."""
    return (member.name, member.status, member.avatar_url, member.metadata)
