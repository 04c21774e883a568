"""What the program's exit code says."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit codes of every command; `docs/cli.md` and `--help` list them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    FORBIDDEN = 4
    TIMEOUT = 5
    CONNECTION = 6
    GAP = 7
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "done",
    Exit.FAILED: "failed; the message says why",
    Exit.USAGE: "wrong arguments",
    Exit.AUTH: "no token, or one that the server does not accept",
    Exit.FORBIDDEN: "the access rules do not allow it",
    Exit.TIMEOUT: "the time ran out (with --count: before so many messages came)",
    Exit.CONNECTION: "the server could not be reached",
    Exit.GAP: "messages were missed, and --fail-on-gap was given",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.TERMINATED: "terminated (SIGTERM)",
}

_BY_CODE: Final[dict[str, Exit]] = {
    **dict.fromkeys(
        (
            "unauthenticated",
            "token_invalid",
            "token_expired",
            "auth_timeout",
            "auth_refused",
            "token_unavailable",
        ),
        Exit.AUTH,
    ),
    "forbidden": Exit.FORBIDDEN,
    **dict.fromkeys(("timeout", "outcome_unknown"), Exit.TIMEOUT),
    **dict.fromkeys(
        ("connection_failed", "not_connected", "going_away", "idle_timeout", "unavailable"),
        Exit.CONNECTION,
    ),
    **dict.fromkeys(("invalid_option", "invalid_topic", "insecure_url", "usage"), Exit.USAGE),
}


def exit_for(code: str) -> Exit:
    """The exit code that belongs to an error code of `spec/errors.yaml`."""
    return _BY_CODE.get(code, Exit.FAILED)


def epilog() -> str:
    """The exit codes as they stand at the end of every `--help`."""
    lines = [f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    return "exit codes:\n" + "\n".join(lines)
