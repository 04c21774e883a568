"""`hanzo-pubsub completion`: prints a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.cli.arguments import Parser, usage_error
from hanzoai.pubsub.cli.exits import LOCAL, Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SHELLS: Final = ("bash", "zsh", "fish", "tcsh", "powershell")
_PATHS: Final = {"FILE", "CONTRACT"}
"""Names of arguments that are paths."""


def main(argv: Sequence[str]) -> int:
    """Print the script. Exits with 2 if the shell is unknown, or the package `shtab` is missing."""
    args = build_parser().parse_args(argv)
    try:
        shtab = import_module("shtab")
    except ModuleNotFoundError:
        usage_error(
            "Completion needs the package `shtab`, which is not installed.",
            remedy="Install it: pip install 'hanzoai.pubsub[cli]'.",
        )
    program = _program(_parsers(), shtab.FILE)
    print(shtab.complete(program, shell=args.shell))
    return Exit.OK


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub completion`."""
    parser = Parser(
        "completion",
        "Print a script with which your shell completes commands and options. Load it when the"
        " shell starts, for example with this line in ~/.bashrc:\n"
        '  eval "$(hanzo-pubsub completion bash)"',
        exits=LOCAL,
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))
    return parser


def _parsers() -> Mapping[str, tuple[str, argparse.ArgumentParser]]:
    """The line of help and the arguments of each command. A plugin may have no arguments."""
    # The program imports this module only when it runs the command.
    from hanzoai.pubsub.cli.main import COMMANDS, plugins

    found: dict[str, tuple[str, argparse.ArgumentParser]] = {}
    for name, text in COMMANDS.items():
        found[name] = (text, import_module(f"hanzoai.pubsub.cli.{name}").build_parser())
    for name, entry in plugins().items():
        command = entry.load()
        build = getattr(command, "build_parser", argparse.ArgumentParser)
        found[name] = (str(getattr(command, "help", "")), build())
    return found


def _program(
    parsers: Mapping[str, tuple[str, argparse.ArgumentParser]], files: object
) -> argparse.ArgumentParser:
    """One parser with every command.

    Args:
        parsers: The line of help and the arguments of each command.
        files: What marks an argument whose values are paths.
    """
    program = argparse.ArgumentParser("hanzo-pubsub")
    program.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = program.add_subparsers(dest="command")
    for name, (text, parser) in parsers.items():
        _mark_paths(parser._actions, files)  # noqa: SLF001 -- argparse has no public list
        commands.add_parser(name, help=text, parents=[parser], add_help=False)
    return program


def _mark_paths(actions: Iterable[argparse.Action], files: object) -> None:
    for action in actions:
        if action.metavar in _PATHS:
            vars(action)["complete"] = files
