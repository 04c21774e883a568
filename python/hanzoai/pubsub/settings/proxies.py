"""The proxies of connections: the option `proxy`, or those of the system."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hanzoai.pubsub.settings.urls import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.settings.options import ClientOptions


def socket_proxy(options: ClientOptions) -> str | None:
    """The URL of the proxy for the WebSocket; None without one.

    Raises:
        UnicodeError: The host of the WebSocket cannot exist.
    """
    return _proxy(options, options.socket_url, _of_websockets)


def http_proxy(options: ClientOptions) -> str | None:
    """The URL of the proxy for REST and event streams; None without one."""
    return _proxy(options, options.http_url, system_proxy)


def system_proxy(url: str) -> str | None:
    """The URL of the system's proxy for an `http://` or `https://` URL; None without one."""
    # Loaded only for connections to other machines.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    named = getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def host_of(proxy: str | None) -> str | None:
    """The host in the URL of a proxy, for messages; None without one."""
    try:
        return urlsplit(proxy or "").hostname
    except ValueError:
        return None


def _proxy(options: ClientOptions, url: str, of_system: Callable[[str], str | None]) -> str | None:
    if not options.proxy or is_loopback(urlsplit(url).hostname or ""):
        return None
    return options.proxy if isinstance(options.proxy, str) else of_system(url)


def _of_websockets(url: str) -> str | None:
    from websockets import uri

    # websockets 15.0 has the function in `uri`.
    home: Any = uri if hasattr(uri, "get_proxy") else import_module("websockets.proxy")
    proxy: str | None = home.get_proxy(uri.parse_uri(url))
    return proxy
