"""The error text if another program answers at the address of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from hanzoai.pubsub.errors import (
    ConnectionFailed,
    NotFound,
    ProtocolError,
    PubSubError,
    Unsupported,
)
from hanzoai.pubsub.settings.urls import endpoints

if TYPE_CHECKING:
    from hanzoai.pubsub.settings.options import ClientOptions

_FOREIGN: Final = (NotFound, ProtocolError, Unsupported)

# The variable counts only beside that of `url`.
_GIVE: Final = "`rest_url` (HANZO_PUBSUB_REST_URL if HANZO_PUBSUB_URL sets `url`)"

E = TypeVar("E", bound=PubSubError)


def doubt_address(error: E, options: ClientOptions, body: bytes = b"") -> E:
    """Mention the address in the remedy of an error, if the address may be wrong.

    Args:
        error: Error of a request: no answer, or a server without the path.
        options: Options with both addresses.
        body: Body of the answer; a problem document with a code comes from the API itself.
    """
    foreign = isinstance(error, _FOREIGN) and b'"code"' not in body
    if options.http_derived and (foreign or isinstance(error, ConnectionFailed)):
        found = f"`rest_url` was derived from `url` as {options.http_url}; "
        error.remedy = (
            f"{found}pass {_GIVE}, the URL of the server's HTTP port."
            if foreign
            else f"{error.remedy} {found}if that is wrong, pass {_GIVE}."
        )
    elif foreign:
        likely = _likely(options)
        same = urlsplit(options.http_url).netloc == urlsplit(options.socket_url).netloc
        if likely is not None:
            error.remedy = f"The HTTP API is probably at {likely}: pass this as `rest_url`."
        elif same:
            error.remedy = (
                "The WebSocket has this address, too: route `/v1/` to the HTTP API, or set"
                " `rest_url` to its address."
            )
    return error


def doubt_port(options: ClientOptions) -> str | None:
    """What the port of the HTTP API is instead; None if nothing is known against it."""
    if options.http_derived or _likely(options) is None:
        return None
    port = urlsplit(options.http_url).port
    return f"port {port} is the WebSocket port, not the HTTP port"


def _likely(options: ClientOptions) -> str | None:
    """The HTTP API that belongs to its address, if that is the address of a WebSocket."""
    likely = endpoints(options.http_url.replace("http", "ws", 1)).http
    return None if urlsplit(likely).netloc == urlsplit(options.http_url).netloc else likely
