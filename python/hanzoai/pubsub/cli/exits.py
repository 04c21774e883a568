"""The exit codes of the program."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ReplyError

if TYPE_CHECKING:
    from collections.abc import Collection

    from hanzoai.pubsub.errors import PubSubError


class Exit(IntEnum):
    """Exit codes of all commands; `docs/cli.md` and `--help` list them."""

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
    Exit.FAILED: "failure; the message states the reason",
    Exit.USAGE: "wrong arguments",
    Exit.AUTH: "no token, or the server rejected it",
    Exit.FORBIDDEN: "the access rules do not allow this",
    Exit.TIMEOUT: "timeout",
    Exit.CONNECTION: "the server is not reachable",
    Exit.GAP: "messages were missed, with --fail-on-gap",
    Exit.HUNG_UP: "the terminal was closed (SIGHUP)",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.TERMINATED: "terminated (SIGTERM)",
}

_COUNTED: Final = " (with --count: before N messages or requests arrived)"

LOCAL: Final = frozenset(
    {Exit.OK, Exit.FAILED, Exit.USAGE, Exit.HUNG_UP, Exit.INTERRUPTED, Exit.TERMINATED}
)
"""Exit codes that do not depend on the server."""
REMOTE: Final = LOCAL | {Exit.AUTH, Exit.FORBIDDEN, Exit.TIMEOUT, Exit.CONNECTION}
"""Exit codes of a command that uses the server."""

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


def epilog(exits: Collection[Exit] = MEANINGS.keys(), *, counts: bool = True) -> str:
    """The list of exit codes at the end of a `--help`.

    Args:
        exits: The codes that the command can return.
        counts: Whether it has `--count`.
    """
    lines = [
        f"  {code.value:>3}  {meaning}{_COUNTED if counts and code is Exit.TIMEOUT else ''}"
        for code, meaning in MEANINGS.items()
        if code in exits
    ]
    return "exit codes:\n" + "\n".join(lines)
