"""How commands report a failure: as text on a terminal, elsewhere as one JSON per line."""

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
    """Say on standard error what went wrong, line by line, and answer the exit code."""
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
    """A parser whose errors are those of the commands."""

    def error(self, message: str) -> NoReturn:
        """Say it and exit with 2."""
        raise SystemExit(report_error(f"{message} (see `{self.prog} --help`)", USAGE))


def duration(text: str) -> float:
    """Seconds of `500ms`, `60s`, `5m`, `1h`, `2d`; a bare number is seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 500ms, 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 and at most 366d")
    return seconds
