"""What the commands say of a failure: for people on a terminal, anywhere else one JSON a line."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final, NoReturn

FAILED: Final = 1
USAGE: Final = 2


def complain(text: str, code: int = FAILED) -> int:
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
    """A parser whose complaints are those of the commands."""

    def error(self, message: str) -> NoReturn:
        """Say it and exit with 2."""
        raise SystemExit(complain(f"{message} (see `{self.prog} --help`)", USAGE))
