"""`hanzo-pubsub generate`: code and documents from a topic contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pubsub_server.command_errors import USAGE, Parser, report_error
from pubsub_server.contract import asyncapi_and_rules, setup
from pubsub_server.contract.document import ContractError
from pubsub_server.contract.python_types import python_types
from pubsub_server.contract.typescript_types import typescript_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.contract.document import Contract

_WRITERS: Mapping[str, tuple[str, Callable[[Contract], str]]] = {
    "python": ("pydantic models", python_types),
    "typescript": ("TypeScript types and the map `Topics`", typescript_types),
    "asyncapi": ("an AsyncAPI 3.1 document", asyncapi_and_rules.asyncapi),
    "access": ("access rules for `serve --rules`", asyncapi_and_rules.access_rules),
}


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub generate`."""
    parser = Parser(
        prog="hanzo-pubsub generate",
        description="Generate code and documents from a topic contract. Without an option, only "
        "check the contract.",
        allow_abbrev=False,
    )
    parser.add_argument("contract", metavar="CONTRACT", type=Path, help="the contract, YAML")
    for name, (what, _) in _WRITERS.items():
        parser.add_argument(f"--{name}", metavar="FILE", type=Path, help=f"write {what} to FILE")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with 1 if a FILE differs from what would be written",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Write the files that the flags name; exit code 2 if the contract or a flag is wrong."""
    options = build_parser().parse_args(argv)
    try:
        contract = setup.load(options.contract)
        wanted: list[tuple[Path, str]] = [
            (getattr(options, name), write(contract))
            for name, (_, write) in _WRITERS.items()
            if getattr(options, name) is not None
        ]
    except ContractError as error:
        return report_error(str(error), USAGE)
    return _compare(wanted) if options.check else _write(wanted)


def _compare(wanted: Sequence[tuple[Path, str]]) -> int:
    differing = [str(file) for file, text in wanted if _present(file) != text]
    if differing:
        return report_error(f"not current: {', '.join(differing)}; run the command without --check")
    return 0


def _write(wanted: Sequence[tuple[Path, str]]) -> int:
    for file, text in wanted:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            return report_error(f"{file} cannot be written: {error.strerror}")
        sys.stdout.write(f"written: {file}\n")
    return 0


def _present(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
