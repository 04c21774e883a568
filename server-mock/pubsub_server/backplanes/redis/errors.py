"""Describes errors of Redis for operators, without the secrets of its URL."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.asyncio.connection import parse_url
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.shared.failure_texts import system_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN: Final = {
    "MISCONF": (
        "Redis cannot write to its disk",
        "free space on its disk, and check its log (stop-writes-on-bgsave-error, appendonly)",
    ),
    "NOREPLICAS": (
        "Redis has fewer replicas than it requires",
        "restart them, or lower its min-replicas-to-write",
    ),
    "BUSY": (
        "Redis is busy with a script",
        "wait until it ends, or stop it with SCRIPT KILL",
    ),
}
_IN_SCRIPT: Final = ("The user executing the script can't ", "ACL failure in script")
"""How Redis 7.0, and later releases and Valkey, begin the error for a call of a script."""
_NO_ROOM: Final = "max number of clients reached"
CLOSED: Final = "the server closed the connection"
REPLICA: Final = "Redis is a replica, which accepts no writes; use its primary"
_STATES: Final[Mapping[type[Exception], str]] = {
    OutOfMemoryError: "Redis is full (maxmemory); raise its maxmemory, or remove data",
    ReadOnlyError: REPLICA,
    MasterDownError: "Redis is a replica that has lost its primary; use its primary",
    BusyLoadingError: "Redis loads its data; wait until it has finished",
}
"""States in which Redis answers, but does not work: each with the remedy."""


class RefusedError(RedisError):
    """Redis is reachable but refuses, temporarily or until an operator fixes it.

    Args:
        why: A clause for users and operators.
        remedy: What the operator must do.
    """

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.why}: {self.remedy}"


class ForbiddenError(RefusedError):
    """The user of the connection lacks a permission."""


def refusal(error: ResponseError) -> RefusedError | None:
    """Explains an error from Redis that the command did not cause."""
    reply = str(error)
    if isinstance(error, NoPermissionError) or reply.startswith(_IN_SCRIPT):
        reply = reply.partition(" script: ")[0]
        return ForbiddenError(
            f"the user of redis_url lacks a permission ({reply})",
            "give it the commands, keys and channels that this page lists (ACL LOG of Redis names"
            " the rejected one): https://pubsub.hanzo.ai/docs/operations/#redis",
        )
    known = _KNOWN.get(reply.partition(" ")[0])
    return RefusedError(*known) if known is not None else None


def cause(error: Exception) -> str:
    """For the log: the problem, and the remedy if it is known."""
    if state := _STATES.get(type(error)):
        return state
    if isinstance(error, ClusterDownError):
        return (
            f"the Redis Cluster is incomplete ({error}); check `redis-cli cluster info` and"
            " cluster-require-full-coverage"
        )
    if isinstance(error, AuthenticationError):
        return f"{_unknown(error)}; correct redis_url, and restart this node"
    if _NO_ROOM in str(error):
        return "Redis accepts no more connections (maxclients); raise its maxclients"
    return str(error) if isinstance(error, RefusedError) else reason(error)


def answers(error: Exception) -> bool:
    """Whether Redis can be reached, and its state is the cause."""
    return isinstance(error, (*_STATES, ClusterDownError))


def reason(error: Exception) -> str:
    """Why a call failed, in the words of the operating system if it knows them."""
    if text := system_text(error):
        return text
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        return "no answer in time"
    text = str(error) or type(error).__name__
    # The words of redis-py.
    return CLOSED if text == "Connection closed by server." else text


# ---------------------------------------------------------------- at the start

_E = TypeVar("_E", bound=BaseException)
_TRUST: Final = {
    9: "check the clock of this machine",
    10: "renew it",
    62: "name the host as the certificate does",
    64: "name the host as the certificate does",
}
"""Remedies, by the code of OpenSSL."""
_UNKNOWN_AUTHORITY: Final = "append ?ssl_ca_certs=FILE with its authority to the URL"
_CERTIFY: Final = "add ssl_certfile=FILE and ssl_keyfile=FILE to the options of the URL"


def unusable(url: str, error: Exception, *, cluster: bool = False) -> str:
    """The problem and the remedy, for the operator.

    Args:
        url: See `link.Link`.
        error: The error of the first calls.
        cluster: See `link.Link`.
    """
    if isinstance(error, MasterDownError):
        return cause(error)
    if not cluster and isinstance(error, (ClusterDownError, MovedError)):
        return "this server is a node of a Redis Cluster; set redis_cluster"
    if _NO_ROOM in str(error):
        return cause(error)
    if isinstance(error, AuthenticationError):
        return _unknown(error)
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, ResponseError):
        return _refused(error)
    if isinstance(error, InvalidResponse):
        return f"{_where(url)} answers, but is not a Redis server"
    return _unreachable(url, error)


def _unknown(error: AuthenticationError) -> str:
    reply = str(error)
    if reply.startswith("HELLO") or "Authentication required" in reply:
        return "Redis requires a password: redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"
    return f"Redis refuses the user or password: {reply}"


def _refused(error: ResponseError) -> str:
    reply = str(error)
    if "DB index" in reply:
        return (
            f"Redis has no database with this number ({reply}); leave it out, or raise `databases`"
        )
    if "unknown command" in reply and "HELLO" in reply:
        return "this Redis is older than 6; upgrade it to 7.0 or later"
    if "cluster support disabled" in reply:
        return "it is not a Redis Cluster; remove redis_cluster"
    return cause(error)


def _unreachable(url: str, error: Exception) -> str:
    where = _where(url)
    if isinstance(error, BusyLoadingError):
        return f"Redis at {where} still loads its data; start again when it has finished"
    distrust = _within(error, ssl.SSLCertVerificationError)
    if distrust is not None:
        return (
            f"the certificate of Redis at {where} is not trusted ({distrust.verify_message});"
            f" {_TRUST.get(distrust.verify_code, _UNKNOWN_AUTHORITY)}"
        )
    failed = _within(error, ssl.SSLError)
    if failed is not None and "UNKNOWN_CA" in str(failed):
        return (
            f"Redis at {where} does not trust the client certificate in ssl_certfile; give one that"
            " an authority in its tls-ca-cert-file has signed"
        )
    if failed is not None and "CERTIFICATE_REQUIRED" in str(failed):
        return f"Redis at {where} requires a client certificate; {_CERTIFY}"
    reply = f"Redis cannot be reached at {where} ({reason(error)})"
    silent = isinstance(error, (RedisTimeoutError, TimeoutError))
    reset = _within(error, ConnectionResetError) is not None
    if url.startswith("rediss:") and reset:
        # With TLS 1.3, a reset can overtake the answer about the client certificate.
        if dict(parse_url(url)).get("ssl_certfile"):
            return f"{reply}; check whether it trusts the client certificate in ssl_certfile"
        return f"{reply}; if it requires a client certificate, {_CERTIFY}"
    if url.startswith("rediss:"):
        return f"{reply}; is it running, and does this port use TLS? If not, write redis://"
    if silent or reset or "closed" in str(error):
        return f"{reply}; does it require TLS (rediss://), or does another program use this port?"
    return f"{reply}; is it running?"


def _where(url: str) -> str:
    return address_of(parse_url(url))


def address_of(options: Mapping[str, Any]) -> str:
    """The part of a URL that may be shown: the rest may be a secret."""
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def _within(error: BaseException, kind: type[_E]) -> _E | None:
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, kind):
            return at
        at = at.__cause__ or at.__context__
    return None
