"""`hanzo-pubsub serve` and `hanzo-pubsub token`: the entry points of `hanzo_pubsub.commands`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import yaml

from pubsub_server import preflight
from pubsub_server.access import setup as access
from pubsub_server.access.setup import StartError
from pubsub_server.auth import api_keys, dev_tokens
from pubsub_server.auth.dev_tokens import KeyFileError
from pubsub_server.auth.identity import KINDS
from pubsub_server.command_errors import (
    FAILED,
    USAGE,
    Parser,
    duration,
    identifier,
    report_error,
    report_warning,
)
from pubsub_server.observe import logs
from pubsub_server.settings import sources as config_sources
from pubsub_server.settings.sources import SettingsError
from pubsub_server.settings.unread_variables import unread_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pubsub_server.settings.config import Settings
    from pubsub_server.settings.sources import Examined

OK: Final = 0
_TTL: Final = 3600.0
"""Seconds until a token expires."""
_GRANTS: Final = [
    "name",
    "avatar_url",
    "orgs",
    "sessions_owned",
    "sessions_shared",
    "agents",
    "bulk",
]
"""Options of `token` that an entry of an API key has, if they are given."""

_LOG: Final = logging.getLogger("pubsub_server")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the program `hanzo-pubsub`.

    Attributes:
        name: The word after `hanzo-pubsub`.
        help: One line.
        run: Takes the arguments after the name and returns the exit code.
        build_parser: The arguments, for the completion of a shell.
    """

    name: str
    help: str
    run: Callable[[Sequence[str]], int]
    build_parser: Callable[[], Parser]

    def __call__(self, argv: Sequence[str]) -> int:
        """Runs the command and returns the exit code: 0, 1 for a failure, 2 for wrong usage."""
        try:
            return self.run(argv)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else FAILED


def _serve_parser() -> Parser:
    parser = Parser(
        prog="hanzo-pubsub serve",
        usage="hanzo-pubsub serve [--dev] [--config FILE] [--check-config]"
        f"\n{' ' * 26}[--SETTING VALUE ...]",
        description="Run a Hanzo PubSub server until SIGTERM or Ctrl-C. When the server accepts "
        "connections, it prints one JSON line with its addresses. Logs go to standard error.",
        epilog="Every setting is also an environment variable (HANZO_PUBSUB_HTTP_PORT) and a key "
        "of the file (http_port). A flag overrides the environment, which overrides the file.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="print the effective settings and all problems, and exit with 0 or 2; does not"
        " connect to IAM, Redis or other machines",
    )
    # A supervisor passes its folder and the worker's number.
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    config_sources.add_flags(parser)
    return parser


def _serve(argv: Sequence[str]) -> int:
    parser = _serve_parser()
    parsed, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(config_sources.unknown_flag(unknown[0]))
    options: dict[str, object] = vars(parsed)
    only_check = bool(options.pop("check_config"))
    worker = options.pop("worker")
    named = options.pop("config")
    file = os.environ.get("HANZO_PUBSUB_CONFIG") if named is None else str(named)
    if file == "":
        source = "HANZO_PUBSUB_CONFIG" if named is None else "--config"
        parser.error(f"{source} is empty; give the path of a file, or leave it out")
    path = None if file is None else Path(file)
    if only_check:
        return _check(config_sources.examine(options, os.environ, path))
    try:
        settings = config_sources.load(options, os.environ, path)
    except SettingsError as error:
        return report_error(str(error), USAGE)
    # The supervisor has checked what its workers would find.
    if worker is None and (problems := preflight.problems(settings)):
        return report_error("\n".join(problems), USAGE)
    logs.configure(settings)
    if worker is None:
        for line in (*unread_variables(os.environ), *preflight.warnings(settings)):
            _LOG.warning("%s", line)
    try:
        with _ending_on_sigterm():
            if worker is not None:
                folder, number = cast("list[str]", worker)
                _run(settings, (Path(folder), int(number)))
            elif settings.workers == 1:
                _run(settings)
            else:
                _supervise(settings, argv)
    except StartError as error:
        return report_error(str(error))
    return OK


@contextlib.contextmanager
def _ending_on_sigterm() -> Generator[None]:
    """Treat SIGTERM like Ctrl-C until the server or supervisor has its own handler.

    The kernel ignores a signal without a handler for the first process of a container.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can set a handler.
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(read: Examined) -> int:
    problems = [*read.problems]
    if read.anyhow is not None:
        found = preflight.problems(read.anyhow)
        problems += [line for line in found if line not in problems and not read.caused(line)]
    if read.settings is not None:
        sys.stdout.write(config_sources.dump(read.settings, read.sources))
        for line in (*unread_variables(os.environ), *preflight.warnings(read.settings)):
            report_warning(line)
    return report_error("\n".join(problems), USAGE) if problems else OK


def _supervise(settings: Settings, argv: Sequence[str]) -> None:
    from pubsub_server.workers.supervisor import Supervisor

    async def supervise() -> None:
        await Supervisor(settings, argv).run()

    # Create the key that all workers use.
    access.build_dev_key(settings)
    asyncio.run(supervise())


def _run(settings: Settings, worker: tuple[Path, int] | None = None) -> None:
    # `--check-config` and `token` do not need these imports.
    from pubsub_server.process import new_event_loop, run, tune_collector

    tune_collector()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(settings, worker=worker))


def _unknown_argument(text: str, parser: Parser) -> str:
    """The error about an argument that `token` does not have."""
    if not text.startswith("-"):
        return f"{text!r} is not part of a flag; write --user {text} for a token of this user"
    known = parser.option_strings()
    closest = difflib.get_close_matches(text.partition("=")[0], known, n=1)
    return f"{text}: there is no such flag{f'; did you mean {closest[0]}?' if closest else ''}"


def _token_parser() -> Parser:
    parser = Parser(
        prog="hanzo-pubsub token",
        usage="hanzo-pubsub token --user ID [--kind KIND] [--org ID] [--ttl TIME]"
        f"\n{' ' * 26}[--session-owner ID] [--agent ID] ..."
        f"\n{' ' * 7}hanzo-pubsub token --api-key --user ID ...",
        description="Print a token that `hanzo-pubsub serve --dev` on this machine accepts, or "
        "with --api-key a new API key and its entry for the file of --api-keys-file.",
        allow_abbrev=False,
    )
    who = parser.add_argument_group("identity")
    who.add_argument("--user", type=identifier, metavar="ID", help="user id; required")
    who.add_argument("--name", help="display name")
    who.add_argument("--avatar-url", metavar="URL", help="URL of the user's picture")
    kind = who.add_mutually_exclusive_group()
    kind.add_argument(
        "--kind",
        choices=KINDS,
        default="user",
        metavar="KIND",
        help=f"kind of the identity: {', '.join(KINDS)} [default: user]",
    )
    for name in ("service", "admin"):
        kind.add_argument(
            f"--{name}",
            dest="kind",
            action="store_const",
            const=name,
            help=f"same as --kind {name}",
        )
    may = parser.add_argument_group("permissions (each option can be repeated)")
    for flag, target, text in (
        ("--org", "orgs", "member of this organization"),
        ("--session-owner", "sessions_owned", "owns this chat session"),
        ("--session-shared", "sessions_shared", "this chat session is shared with the user"),
        ("--agent", "agents", "has access to this agent"),
    ):
        may.add_argument(
            flag,
            dest=target,
            type=identifier,
            action="append",
            default=[],
            metavar="ID",
            help=text,
        )
    parser.add_argument(
        "--bulk", action="store_true", help="allow bulk publishing, with its own rate limit"
    )
    parser.add_argument(
        "--ttl",
        type=duration,
        metavar="TIME",
        help="time until the token or key expires [default: 1h; an API key does not expire]",
    )
    parser.add_argument(
        "--dev-key-file",
        type=Path,
        metavar="FILE",
        help="file with the signing key, created if missing [default: HANZO_PUBSUB_DEV_KEY_FILE]",
    )
    parser.add_argument(
        "--api-key", action="store_true", help="create an API key instead of a token"
    )
    return parser


def _token(argv: Sequence[str]) -> int:
    parser = _token_parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(_unknown_argument(unknown[0], parser))
    if options.user is None:
        parser.error("--user is missing; write the id of the user, for example --user alice")
    if options.api_key:
        return _api_key(options)
    named = options.dev_key_file or os.environ.get("HANZO_PUBSUB_DEV_KEY_FILE")
    try:
        key = dev_tokens.load_key(Path(named) if named else None)
    except KeyFileError as error:
        return report_error(str(error))
    print(
        dev_tokens.mint(
            key,
            options.user,
            kind=options.kind,
            ttl=options.ttl or _TTL,
            name=options.name,
            avatar_url=options.avatar_url,
            orgs=options.orgs,
            sessions_owned=options.sessions_owned,
            sessions_shared=options.sessions_shared,
            agents=options.agents,
            bulk=options.bulk,
        )
    )
    return OK


def _api_key(options: argparse.Namespace) -> int:
    key, digest = api_keys.generate()
    entry = {"id": f"{options.user}-{digest[:8]}", "sha256": digest, "user": options.user}
    entry |= {"kind": options.kind} if options.kind != "user" else {}
    entry |= {field: value for field in _GRANTS if (value := getattr(options, field))}
    if options.ttl:
        expiry = datetime.now(UTC) + timedelta(seconds=options.ttl)
        entry["expires_at"] = expiry.isoformat(timespec="seconds")
    if sys.stdout.isatty():
        # As the file has it, to paste.
        print(yaml.safe_dump({"key": key, "keys": [entry]}, sort_keys=False), end="")
    else:
        print(json.dumps({"key": key, "entry": entry}))
    print(
        "The key is not shown again. Add the entry to `keys:` in the file of --api-keys-file.",
        file=sys.stderr,
    )
    return OK


def _generate(argv: Sequence[str]) -> int:
    # Imported late: no other command needs it.
    from pubsub_server.contract.generate import run

    return run(argv)


def _generate_parser() -> Parser:
    from pubsub_server.contract.generate import build_parser

    return build_parser()


serve = Command("serve", "run the server", _serve, _serve_parser)
generate = Command(
    "generate", "generate types, documents and access rules", _generate, _generate_parser
)
token = Command(
    "token",
    "print a token for a development server, or create an API key",
    _token,
    _token_parser,
)
