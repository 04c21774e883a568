"""Reports failures and warnings: as text on a terminal, otherwise as one JSON object per line."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pubsub_server.auth.identity import MAX_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILED: Final = 1
USAGE: Final = 2

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_NEGATIVE: Final = re.compile(r"-\d", re.ASCII)
_LONGEST: Final = 366 * 86400.0
_VALUE_OF_SWITCH: Final = re.compile("ignored explicit argument .*")
"""What argparse says of `--tracing=no`."""


def report_error(text: str, code: int = FAILED) -> int:
    """Write the failure to standard error, line by line, and return the exit code."""
    name = "usage" if code == USAGE else "failed"
    for line in text.splitlines():
        _report({"event": "error", "message": line, "code": name}, line)
    return code


def report_warning(line: str) -> None:
    """Write a warning to standard error."""
    _report({"event": "warning", "message": line}, f"warning: {line}")


def _report(event: Mapping[str, str], text: str) -> None:
    if sys.stderr.isatty():
        line = f"hanzo-pubsub: {text}"
    else:
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    sys.stderr.write(line + "\n")


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in the format of the commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # `-1h` is a value too: its error is more helpful than that of a missing value.
        self._negative_number_matcher = _NEGATIVE

    def error(self, message: str) -> NoReturn:
        """Report the error and exit with 2."""
        message = _VALUE_OF_SWITCH.sub("takes no value", message)
        message = message.replace("expected one argument", "the value is missing")
        raise SystemExit(report_error(f"{message} (see `{self.prog} --help`)", USAGE))

    def option_strings(self) -> list[str]:
        """The flags that it accepts."""
        return list(self._option_string_actions)


def duration(text: str) -> float:
    """Parse `500ms`, `60s`, `5m`, `1h` or `2d` to seconds; a plain number is seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 500ms, 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range; write more than 0 and at most 366d"
        )
    return seconds


def identifier(text: str) -> str:
    """Check the id of a user, an organization, a session or an agent."""
    if not 1 <= len(text) <= MAX_ID:
        raise argparse.ArgumentTypeError(f"has {len(text)} characters; write 1 to {MAX_ID}")
    return text
