"""The error text if another program answers at the address of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from hanzoai.pubsub.errors import (
    ConnectionFailed,
    NotFound,
    ProtocolError,
    PubSubError,
    Unsupported,
)

if TYPE_CHECKING:
    from hanzoai.pubsub.settings.options import ClientOptions

_FOREIGN: Final = (NotFound, ProtocolError, Unsupported)

E = TypeVar("E", bound=PubSubError)


def doubt_address(error: E, options: ClientOptions, body: bytes = b"") -> E:
    """Mention a derived address in the remedy of an error, if the address may be wrong.

    Args:
        error: Error of a request: no answer, or a server without the path.
        options: Options with both addresses.
        body: Body of the answer; a problem document with a code comes from the API itself.
    """
    foreign = isinstance(error, _FOREIGN) and b'"code"' not in body
    if options.http_derived and (foreign or isinstance(error, ConnectionFailed)):
        found = f"`rest_url` was derived from `url` as {options.http_url}; "
        error.remedy = (
            f"{found}pass `rest_url` (HANZO_PUBSUB_REST_URL), the URL of the server's HTTP port."
            if foreign
            else f"{error.remedy} {found}if that is wrong, pass `rest_url` (HANZO_PUBSUB_REST_URL)."
        )
    return error
