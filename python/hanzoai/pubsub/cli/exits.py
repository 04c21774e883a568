"""The exit codes of the program."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ReplyError

if TYPE_CHECKING:
    from hanzoai.pubsub.errors import PubSubError


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
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "success",
    Exit.FAILED: "failure; the message has the reason",
    Exit.USAGE: "wrong arguments",
    Exit.AUTH: "no token, or the server rejected it",
    Exit.FORBIDDEN: "the access rules do not allow this",
    Exit.TIMEOUT: "timeout (with --count: before N messages or requests arrived)",
    Exit.CONNECTION: "the server is not reachable",
    Exit.GAP: "messages were missed, with --fail-on-gap",
    Exit.HUNG_UP: "the terminal was closed (SIGHUP)",
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
    **dict.fromkeys(("timeout", "request_timeout", "outcome_unknown"), Exit.TIMEOUT),
    **dict.fromkeys(
        ("connection_failed", "not_connected", "going_away", "idle_timeout", "unavailable"),
        Exit.CONNECTION,
    ),
    **dict.fromkeys(("invalid_option", "invalid_topic", "insecure_url", "usage"), Exit.USAGE),
}


def exit_for(error: PubSubError) -> Exit:
    """The exit code of an error."""
    # A responder can use any code.
    if isinstance(error, ReplyError):
        return Exit.FAILED
    return _BY_CODE.get(error.code, Exit.FAILED)


def epilog() -> str:
    """The list of exit codes at the end of every `--help`."""
    lines = [f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    return "exit codes:\n" + "\n".join(lines)
