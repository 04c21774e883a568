"""Durations as commands take them; the server's commands, too."""

from __future__ import annotations

import argparse
import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_LONGEST: Final = 366 * 86400.0


def duration(text: str) -> float:
    """Seconds of `500ms`, `60s`, `5m`, `1h`, `2d`; a bare number is seconds."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 500ms, 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 and at most 366d")
    return seconds
