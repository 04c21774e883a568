"""Reports failures of commands: as text on a terminal, otherwise as one JSON object per line."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Final, NoReturn

FAILED: Final = 1
USAGE: Final = 2

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_LONGEST: Final = 366 * 86400.0


def report_error(text: str, code: int = FAILED) -> int:
    """Write the failure to standard error, line by line, and return the exit code."""
    for line in text.splitlines():
        if sys.stderr.isatty():
            said = f"hanzo-pubsub: {line}"
        else:
            name = "usage" if code == USAGE else "failed"
            said = json.dumps(
                {"event": "error", "message": line, "code": name},
                ensure_ascii=False,
                separators=(",", ":"),
            )
        sys.stderr.write(said + "\n")
    return code


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in the format of the commands."""

    def error(self, message: str) -> NoReturn:
        """Report the error and exit with 2."""
        raise SystemExit(report_error(f"{message} (see `{self.prog} --help`)", USAGE))


def duration(text: str) -> float:
    """Parse `500ms`, `60s`, `5m`, `1h` or `2d` to seconds; a plain number is seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 500ms, 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 and at most 366d")
    return seconds
