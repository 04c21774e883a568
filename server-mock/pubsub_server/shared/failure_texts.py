"""Why a connection to another program failed, or an address cannot be used, for the log."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import aiohttp

_ADDRESSES = "use one of its addresses, or 0.0.0.0 or :: for all of them"


def system_text(error: BaseException) -> str | None:
    """The text of TLS or of the operating system in an error or its causes, if there is one."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {at.verify_message}"
        # `errno` of these is not one of the operating system.
        if isinstance(at, ssl.SSLError):
            return f"TLS failed: {at.strerror or at}"
        if isinstance(at, OSError):
            # With several addresses, asyncio appends the text of each to the first. The numbers of
            # failed name lookups mean something else, on macOS for example `ENOEXEC`.
            number = None if isinstance(at, socket.gaierror) else at.errno
            if number is not None and number in errno.errorcode:
                return os.strerror(number)
            if at.strerror:
                return at.strerror
        at = at.__cause__ or at.__context__
    return None


def http_failure(error: aiohttp.ClientError | TimeoutError | OSError) -> str:
    """The reason why a request failed; contains no address and no content of the request."""
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    return system_text(cause) or name


def listen_failure(error: OSError | OverflowError, *, unix: bool = False) -> str:
    """Why the server cannot listen on an address, with the remedy.

    Args:
        error: The error of the attempt.
        unix: Whether it is a Unix socket.
    """
    number = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror):
        return f"the name has no address ({error.strerror}); {_ADDRESSES}"
    if number == errno.EADDRNOTAVAIL:
        return f"this machine does not have the address; {_ADDRESSES}"
    if number == errno.EADDRINUSE and unix:
        return "the path is in use; end the program that uses it, or choose another path"
    if number == errno.EADDRINUSE:
        return "another process uses it; stop that process, or choose another address"
    if number == errno.EACCES and not unix:
        return "the port needs privileges; choose one above 1023"
    return system_text(error) or str(error) if isinstance(error, OSError) else str(error)
