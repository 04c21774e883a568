"""Chooses the libraries for a WebSocket and its JSON: those of the extra `speed`, if installed.

Chooses picows and msgspec separately. picows supports neither compression nor the system's proxies:
connections that need either use `websockets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.settings.extras import is_usable
from hanzoai.pubsub.settings.proxies import socket_proxy
from hanzoai.pubsub.wire import codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports.connection import Connection, Owner
    from hanzoai.pubsub.wire.codec import Codec


def choose_codec(options: ClientOptions) -> Codec:
    """Return the codec for frames."""
    if not _wanted(options, "msgspec"):
        return codec.plain_codec()
    from hanzoai.pubsub.wire.msgspec_codec import fast_codec

    return fast_codec()


def choose_dialer(
    options: ClientOptions,
) -> Callable[[Owner, ClientOptions], Awaitable[Connection]]:
    """Return the function that opens connections."""
    if _wanted(options, "picows") and not options.compression and not _proxied(options):
        from hanzoai.pubsub.transports import picows_connection

        return picows_connection.dial
    from hanzoai.pubsub.transports import websockets_connection

    return websockets_connection.dial


def _wanted(options: ClientOptions, package: str) -> bool:
    return options.speed != "off" and is_usable(package)


def _proxied(options: ClientOptions) -> bool:
    """Whether the connection goes through a proxy."""
    return socket_proxy(options) is not None
