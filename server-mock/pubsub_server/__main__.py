"""`python -m pubsub_server serve …`: the commands without the client's program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hanzoai.pubsub.cli import process
from pubsub_server.command_errors import USAGE
from pubsub_server.commands import serve, token

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Runs the command that the first argument names."""
    commands = {command.name: command for command in (serve, token)}
    if argv and argv[0] in commands:
        return commands[argv[0]](argv[1:])
    for command in commands.values():
        sys.stderr.write(f"python -m pubsub_server {command.name:8} {command.help}\n")
    return USAGE


if __name__ == "__main__":
    sys.exit(process.run(sys.argv[1:], main))
