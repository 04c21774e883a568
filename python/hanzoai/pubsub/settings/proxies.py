"""The proxies of connections: the option `proxy`, or those of the system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hanzoai.pubsub.settings.urls import is_loopback

if TYPE_CHECKING:
    from hanzoai.pubsub.settings.options import ClientOptions

_NAMES: Final = {
    "http": ("http", "all"),
    "https": ("https", "all"),
    # RFC 6455, 4.1, prefers a SOCKS proxy, then that of HTTPS. `ws_proxy` is for WebSockets alone.
    "ws": ("ws", "socks", "https", "http", "all"),
    "wss": ("wss", "socks", "https", "all"),
}
"""Proxies of the system by the scheme of a URL, the first one that is set counts."""

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def socket_proxy(options: ClientOptions) -> str | None:
    """The URL of the proxy for the WebSocket; None without one."""
    return _proxy(options, options.socket_url)


def http_proxy(options: ClientOptions) -> str | None:
    """The URL of the proxy for REST and event streams; None without one."""
    return _proxy(options, options.http_url)


def system_proxy(url: str) -> str | None:
    """The URL of the system's proxy for a URL of HTTP or of a WebSocket; None without one.

    Libraries read ``ALL_PROXY`` and proxies without a scheme for HTTP, but not for WebSockets.
    """
    # Loaded only for connections to other machines.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    # `NO_PROXY` may name a port, and an IPv6 address with or without brackets.
    names = (host, f"[{host}]") if ":" in host else (host,)
    if is_loopback(host) or any(proxy_bypass(f"{name}:{port}") for name in names):
        return None
    named = getproxies()
    for name in _NAMES[parts.scheme]:
        proxy = named.get(name)
        if not proxy:
            continue
        if "://" not in proxy:
            proxy = f"http://{proxy}"
        # The settings of an operating system name a SOCKS proxy like this.
        if name == "socks" and proxy.startswith("http://"):
            proxy = proxy.replace("http", "socks5h", 1)
        return proxy
    return None


def host_of(proxy: str | None) -> str | None:
    """The host in the URL of a proxy, for messages; None without one."""
    try:
        return urlsplit(proxy or "").hostname
    except ValueError:
        return None


def _proxy(options: ClientOptions, url: str) -> str | None:
    if not options.proxy or is_loopback(urlsplit(url).hostname or ""):
        return None
    return options.proxy if isinstance(options.proxy, str) else system_proxy(url)
