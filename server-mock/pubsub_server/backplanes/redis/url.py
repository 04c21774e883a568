"""Finds what is wrong in the URL of Redis, without connecting."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url
from redis.exceptions import RedisError

from pubsub_server.shared.certificate_files import (
    CertificateFileError,
    load_authorities,
    load_chain,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class UrlError(ValueError):
    """The URL cannot be used. The text has the remedy, and never contains the URL."""


def check_url(url: str) -> None:
    """Check the database, the options and the files of a URL whose scheme and port are valid.

    Raises:
        UrlError: One of them is wrong.
    """
    _see_database(url)
    _see_options(url)


def _see_database(url: str) -> None:
    # redis-py silently reads a value that is not a number as 0.
    path = urlsplit(url).path.strip("/")
    if not url.startswith("unix:") and path and not path.isdecimal():
        raise UrlError(
            "the path of the URL is the number of a database, such as /0; write a / in a user or"
            " password as %2F"
        )


def _see_options(url: str) -> None:
    """Create a connection without dialing: redis-py passes the query of the URL to it."""
    remedy = "correct it in the query of the URL, or remove it"
    try:
        options: dict[str, Any] = dict(parse_url(url))
        pool: Any = BlockingConnectionPool(**options)
        pool.make_connection()
    except (AttributeError, TypeError, ValueError) as error:
        # Other parts of these texts may contain the password.
        _, unknown, name = str(error).partition("unexpected keyword argument '")
        _, invalid, rest = str(error).partition("Invalid value for ")
        wrong = f"the option {rest.partition(' ')[0]}" if invalid else "an option of the URL"
        detail = f"{wrong} has an invalid value; {remedy}"
        if unknown:
            # Python 3.13 may add a suggestion.
            name = name.partition("'")[0]
            detail = f"there is no option '{name}' of a connection to Redis; {remedy}"
    except RedisError as error:
        detail = f"an option of the URL is invalid ({error}); {remedy}"
    else:
        _see_files(options)
        return
    raise UrlError(detail)


def _see_files(options: Mapping[str, Any]) -> None:
    """Load what the URL names, because redis-py reports an unusable file as a failed connection."""
    authorities, certificate, key = (
        options.get(name) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if authorities is not None:
            load_authorities(context, "ssl_ca_certs", Path(authorities))
        # With a passphrase, redis-py decrypts the key.
        if certificate is not None and key is not None and "ssl_password" not in options:
            load_chain(context, ("ssl_certfile", Path(certificate)), ("ssl_keyfile", Path(key)))
    except CertificateFileError as error:
        raise UrlError(str(error)) from None
