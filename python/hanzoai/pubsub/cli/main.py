"""`hanzo-pubsub`: finds and runs a command.

Only the module of the command that was called is imported, so that the program starts fast.
Distributions add commands by the entry point group `hanzo_pubsub.commands`: objects with `.help`
that are called with the arguments and return the exit code.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from hanzoai.pubsub.cli import interrupts, process, stdio
from hanzoai.pubsub.cli.exits import Exit, epilog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.metadata import EntryPoint

GROUP: Final = "hanzo_pubsub.commands"
COMMANDS: Final[dict[str, str]] = {
    "publish": "publish a message, or one JSON value per line from standard input",
    "subscribe": "print messages as they arrive",
    "stream": "print a token stream, or publish standard input as one",
    "request": "publish a request and print the reply",
    "respond": "answer requests with fixed data or the output of a command",
    "history": "print retained messages of a topic",
    "presence": "print the members of a topic",
    "topics": "list active topics (needs the token of an administrator)",
    "doctor": "find out why a connection does not work",
    "completion": "print a script that completes commands and options in your shell",
}
SERVER_COMMANDS: Final[dict[str, str]] = {
    "serve": "run the server",
    "generate": "generate types, AsyncAPI and access rules from a topic contract",
    "token": "print a token for a development server, or create an API key",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments without the program's name; default those of the process.

    Returns:
        The exit code; `docs/cli.md` lists them.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    return process.run(arguments, _run, streams=argv is None)


def _run(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else "--help"
    try:
        if name == "help" and len(arguments) > 1 and not arguments[1].startswith("-"):
            return _find(arguments[1])(["--help"])
        if name in {"-h", "--help", "help"}:
            print(_help())
            return Exit.OK if arguments else Exit.USAGE
        if name in {"-V", "--version"}:
            print(_version())
            return Exit.OK
        command, rest = _find(name), arguments[1:]
        if name in COMMANDS:
            return command(stdio.texts(rest))
        # A plugin decodes the names of files itself, and cleans up after Ctrl-C.
        interrupts.raise_again()
        return command(rest)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else Exit.FAILED if stop.code else Exit.OK


def _find(name: str) -> Callable[[Sequence[str]], int]:
    """The command of that name, its module imported."""
    if name in COMMANDS:
        found: Callable[[Sequence[str]], int] = import_module(f"hanzoai.pubsub.cli.{name}").main
        return found
    added = plugins()
    if name not in added:
        _refuse(name, added)
    plugin: Callable[[Sequence[str]], int] = added[name].load()
    return plugin


def _refuse(name: str, added: Iterable[str]) -> NoReturn:
    from hanzoai.pubsub.cli.arguments import usage_error
    from hanzoai.pubsub.near_names import did_you_mean

    if name in SERVER_COMMANDS:
        usage_error(
            f"`{name}` is part of the server, which is not installed.",
            remedy="Install it: pip install 'hanzoai.pubsub[server]'.",
        )
    if name.startswith("-"):
        usage_error(
            f"The first argument is a command, not {name}.",
            remedy="Options follow the command: hanzo-pubsub subscribe TOPIC --url URL",
        )
    known = (*COMMANDS, *SERVER_COMMANDS, *added)
    usage_error(
        f"There is no command {name!r}.",
        remedy=f"{did_you_mean(name, known)}See `hanzo-pubsub --help`.",
    )


def plugins() -> dict[str, EntryPoint]:
    """The commands that other distributions add, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _help() -> str:
    commands = dict(COMMANDS)
    added = plugins()
    for name, text in SERVER_COMMANDS.items():
        missing = "" if name in added else " (pip install 'hanzoai.pubsub[server]')"
        commands[name] = text + missing
    for name, entry in added.items():
        if name not in commands:
            commands[name] = str(getattr(entry.load(), "help", ""))
    width = max(map(len, commands))
    lines = [f"  {name.ljust(width)}  {text}" for name, text in commands.items()]
    return "\n".join(
        [
            "usage: hanzo-pubsub COMMAND [ARGUMENT ...]",
            "",
            "Publish to Hanzo PubSub and read from it. The output is text on a terminal and",
            "JSON elsewhere, one object per line. --json always prints JSON.",
            "",
            "commands:",
            *lines,
            "",
            "environment:",
            "  HANZO_PUBSUB_URL       WebSocket URL, if --url is not given",
            "  HANZO_PUBSUB_REST_URL  HTTP API, if it does not follow from the WebSocket URL",
            "  HANZO_PUBSUB_TOKEN     token, if neither --token-file nor --token is given",
            "  NO_COLOR               disables colours",
            "",
            "example (run the server in a terminal of its own):",
            "  hanzo-pubsub serve --dev",
            "  export HANZO_PUBSUB_URL=ws://127.0.0.1:8057/ws",
            "  export HANZO_PUBSUB_TOKEN=$(hanzo-pubsub token --user alice)",
            """  hanzo-pubsub publish demo.hello --data '{"text": "hello"}'""",
            "  hanzo-pubsub history demo.hello",
            "",
            epilog(),
            "",
            "Run `hanzo-pubsub COMMAND --help` for the options of a command.",
        ]
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"hanzo-pubsub {version('hanzoai.pubsub')}"
    except PackageNotFoundError:
        return "hanzo-pubsub (not installed)"
