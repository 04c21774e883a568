"""Arguments that several commands share, and their formats."""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hanzoai.pubsub.cli.exits import REMOTE, Exit, epilog
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.stdio import file_name
from hanzoai.pubsub.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_NEGATIVE: Final = re.compile(r"-\d", re.ASCII)
_LONGEST: Final = 366 * 86400.0
FILE_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of a file with data."""
_NAME_MAX: Final = 128
_UNIX_MS: Final = 10**11
"""Numbers from here on are Unix milliseconds (1973 and later), smaller ones seconds."""


class _Help(argparse.HelpFormatter):
    """Wraps the description and keeps the lines of the exit codes."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, as JSON if standard error is not a terminal.

    Args:
        command: Name of the command.
        description: What it does.
        exits: The exit codes that it can return, for its help.
        counts: Whether it has `--count`.
    """

    def __init__(
        self,
        command: str,
        description: str,
        *,
        exits: Collection[Exit] = REMOTE,
        counts: bool = False,
    ) -> None:
        super().__init__(
            prog=f"hanzo-pubsub {command}",
            description=description,
            epilog=epilog(exits, counts=counts),
            formatter_class=_Help,
            allow_abbrev=False,
        )
        # `-1h` is a value too: its error is more helpful than that of a missing value.
        self._negative_number_matcher = _NEGATIVE

    def error(self, message: str) -> NoReturn:
        """Report the error and exit with 2; for an unknown option, suggest the nearest one."""
        message = re.sub("ignored explicit argument .*", "takes no value", message)
        message = message.replace("expected one argument", "the value is missing")
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        meant = did_you_mean(unknown[1], self._option_string_actions) if unknown else ""
        for action in self._get_positional_actions():
            if unknown and unknown[1] == f"--{action.dest}":
                meant = f"Write {action.metavar} without `{unknown[1]}`. "
        usage_error(message, remedy=f"{meant}See `{self.prog} --help`.")


def usage_error(message: str, *, remedy: str) -> NoReturn:
    """Report wrong arguments and exit with 2."""
    from hanzoai.pubsub.errors import PubSubError

    Output(as_json="--json" in sys.argv).error(PubSubError("usage", message, remedy=remedy))
    raise SystemExit(Exit.USAGE.value)


def connection_arguments(parser: argparse.ArgumentParser, *, timeout: str) -> None:
    """Add the options of the connection.

    Args:
        parser: Parser of the command.
        timeout: Help of `--timeout`, which differs between commands.
    """
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--url", help="WebSocket URL, wss://host:8057/ws [default: HANZO_PUBSUB_URL]"
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token; read again when the token expires",
    )
    group.add_argument(
        "--token",
        help="token; other users of the machine can see it, so prefer --token-file or the "
        "variable HANZO_PUBSUB_TOKEN",
    )
    group.add_argument(
        "--rest-url",
        metavar="URL",
        help="URL of the HTTP API [default: HANZO_PUBSUB_REST_URL if the URL is also from the "
        "environment, otherwise derived from --url: port 8057 becomes 8056]",
    )
    group.add_argument(
        "--transport",
        choices=("auto", "websocket", "sse"),
        default="auto",
        help="auto falls back to server-sent events if WebSockets fail [default: auto]",
    )
    group.add_argument(
        "--allow-insecure",
        action="store_true",
        help="allow ws:// and http:// to other machines, which sends the token unencrypted",
    )
    group.add_argument("--timeout", type=duration, metavar="TIME", help=timeout)
    general = parser.add_argument_group("output")
    general.add_argument("--json", action="store_true", help="print JSON, even on a terminal")
    general.add_argument(
        "-v", "--verbose", action="count", default=0, help="log to standard error; -vv logs more"
    )


def via_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--via`, which uses the event stream instead of HIP-56."""
    parser.add_argument(
        "--via",
        metavar="URL",
        help="use the event stream protocol at events://HOST:PORT, events+tls://HOST:PORT or "
        "events+unix:PATH; events://self is the node on this machine",
    )


def short_text(text: str) -> str:
    """An id or a type of a message: 1 to 128 characters."""
    if not 0 < len(text) <= _NAME_MAX:
        raise argparse.ArgumentTypeError(f"give 1 to {_NAME_MAX} characters, not {len(text):,}")
    return text


def duration(text: str) -> float:
    """Parse `500ms`, `60s`, `5m`, `1h` or `2d` to seconds; a plain number is seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range; write more than 0 and at most 366d"
        )
    return seconds


def whole_seconds(text: str) -> int:
    """Parse a duration of whole seconds to seconds; 0 is allowed."""
    if text.strip() == "0":
        return 0
    seconds = duration(text)
    if not seconds.is_integer():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of seconds; write 1s, 5m or 1h"
        )
    return int(seconds)


def moment(text: str) -> int | datetime | timedelta:
    """A time: `5m` ago, Unix milliseconds, or ISO 8601 (local time if it has no zone)."""
    text = text.strip()
    if text.isascii() and text.isdigit() and int(text) >= _UNIX_MS:
        return int(text)
    if _DURATION.fullmatch(text):
        return timedelta(seconds=duration(text))
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 5m (ago), 2026-11-20T08:00:00Z or Unix milliseconds"
        ) from None


def count(text: str) -> int:
    """An integer of at least 1."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1,000,000,000")
    return int(text)


def number(text: str) -> int:
    """An integer from 0 to the largest that JSON numbers represent exactly."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**53):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**53 - 1:,}")
    return int(text)


def position(text: str) -> tuple[str, int]:
    """`TOPIC=SEQ`."""
    topic, separator, seq = text.rpartition("=")
    if not separator or not topic:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC=SEQ")
    return topic, number(seq)


def json_argument(text: str, name: str) -> Any:
    """The JSON that an argument contains, or the file that it names as `@FILE`.

    Ends the program if the file cannot be read, or if there is no JSON in it.

    Args:
        text: The argument.
        name: Name of the argument, for the error.
    """
    try:
        if text.startswith("@"):
            text = read_file(text[1:], name).decode()
        text.encode()
        return parse_json(text)
    except UnicodeError:
        usage_error(f"{name} is not UTF-8 text.", remedy="Convert it to UTF-8.")
    except ValueError as error:
        option = f"{name} " if name.startswith("-") else ""
        examples = (f"{option}'{each}'" for each in ('"hello"', '{"text": "hello"}'))
        usage_error(
            f"{name} is {error}.",
            remedy="Use double quotes in JSON, and single quotes of the shell around it: "
            f"{' or '.join(examples)}.",
        )


def read_file(path: str, name: str) -> bytes:
    """The content of the file that an argument names as `@FILE`.

    Ends the program if the file cannot be read or is too large.

    Args:
        path: The argument without `@`.
        name: Name of the argument, for the error.
    """
    if not path:
        usage_error(f"{name} names no file.", remedy=f"Write {name} @FILE.")
    try:
        with Path(file_name(path)).open("rb") as file:
            content = file.read(FILE_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name is not valid"
        usage_error(
            f"{path} cannot be read: {why}.",
            remedy="After @, give the path of a file that you can read.",
        )
    if len(content) > FILE_MAX:
        usage_error(
            f"{path} has more than {FILE_MAX:,} bytes.",
            remedy="Publish a smaller file: no server accepts such a message.",
        )
    return content


class _NoJson(ValueError):
    """A value that JSON does not support."""


def parse_json(text: str) -> Any:
    """Parse JSON according to RFC 8259: no NaN, no infinity.

    Raises:
        ValueError: Describes the problem without the text.
    """

    def refuse(name: str) -> NoReturn:
        raise _NoJson(f"not valid JSON: {name} is not a JSON value")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except _NoJson:
        raise
    except ValueError:
        # Python limits the digits of an integer, and advises to change the program.
        raise ValueError("not accepted: it has an integer of more than 4,300 digits") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
