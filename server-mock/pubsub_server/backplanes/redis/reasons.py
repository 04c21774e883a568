"""Why a Redis cannot be used at the start, and what to do; never with a secret of its URL."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any, TypeVar

from redis.asyncio.connection import parse_url
from redis.exceptions import AuthenticationError, InvalidResponse, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.backplanes.redis.refusals import RefusedError

_E = TypeVar("_E", bound=BaseException)


def said(url: str, error: Exception) -> str:
    """What to tell the operator.

    Args:
        url: See `link.Link`.
        error: What the first calls ended with.
    """
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
    told = str(error)
    if told.startswith("HELLO") or "Authentication required" in told:
        return "Redis wants a password: redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"
    return f"Redis refuses the user or password: {told}"


def _refused(error: ResponseError) -> str:
    told = str(error)
    if "DB index" in told:
        return f"Redis has no database of that number ({told}); leave it out, or raise `databases`"
    if "cluster support disabled" in told:
        return "it is not a Redis Cluster; remove redis_cluster"
    if isinstance(error, ReadOnlyError):
        return "it is a replica, which takes no writes; name its primary"
    return told


def _unreachable(url: str, error: Exception) -> str:
    where = _where(url)
    distrust = _within(error, ssl.SSLCertVerificationError)
    if distrust is not None:
        return (
            f"the certificate of Redis at {where} is not trusted ({distrust.verify_message}); name"
            " the host as the certificate does, and append ?ssl_ca_certs=FILE where the system"
            " does not know its authority"
        )
    if url.startswith("rediss:") and _within(error, FileNotFoundError) is not None:
        return "a file that it names (ssl_ca_certs, ssl_certfile, ssl_keyfile) is not there"
    told = f"Redis cannot be reached at {where} ({_cause(error)})"
    silent = isinstance(error, (RedisTimeoutError, TimeoutError))
    if url.startswith("rediss:"):
        return f"{told}; is it running, and does it speak TLS there? Else write redis://"
    if silent or "closed" in str(error) or _within(error, ConnectionResetError):
        return f"{told}; does it want TLS there (rediss://), or is something else there?"
    return f"{told}; is it running?"


def _where(url: str) -> str:
    # No more of the URL than this: the rest may be a secret.
    options: dict[str, Any] = dict(parse_url(url))
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def _within(error: BaseException, kind: type[_E]) -> _E | None:
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, kind):
            return at
        at = at.__cause__ or at.__context__
    return None


def _cause(error: BaseException) -> str:
    """What the system said, where it said something."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            # With several addresses, asyncio appends the text of each to the first.
            known = errno.errorcode.get(at.errno or 0)
            return os.strerror(at.errno) if known and at.errno else at.strerror
        at = at.__cause__ or at.__context__
    return type(error).__name__
