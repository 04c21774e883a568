"""The reason why an HTTP request of the server failed, for its log."""

from __future__ import annotations

import errno
import os
import ssl

import aiohttp


def describe_failure(error: aiohttp.ClientError | TimeoutError | OSError) -> str:
    """The reason in words; contains no address and no content of the request."""
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason}"
    if isinstance(cause, OSError):
        # With several addresses, asyncio appends the text of each to the first.
        if cause.errno is not None and cause.errno in errno.errorcode:
            return os.strerror(cause.errno)
        if cause.strerror:
            return cause.strerror
    return name
