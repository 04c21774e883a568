"""SP sockets for publish and subscribe, compatible with NNG and nanomsg in any language.

    from hanzoai.pubsub.sp import PubSocket, SubSocket

    async with PubSocket() as pub, SubSocket() as sub:
        url = await pub.listen("tcp://127.0.0.1:0")
        sub.subscribe(b"sensor")
        await sub.dial(url)
        await pub.wait_for_peers(1, timeout=5)
        pub.send(b"sensor:temp=25")
        print(await sub.recv())

`hanzoai.pubsub.sp.blocking` has the same sockets for programs without asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.sp import blocking
    from hanzoai.pubsub.sp.errors import Closed, NotFound, NotSupported
    from hanzoai.pubsub.sp.sockets import PubSocket, SubSocket
    from hanzoai.pubsub.sp.stats import PeerStats, SocketStats

# Loaded at first use: a server needs only the codec.
_HOMES: Final = {
    "Closed": "errors",
    "NotFound": "errors",
    "NotSupported": "errors",
    "PeerStats": "stats",
    "PubSocket": "sockets",
    "SocketStats": "stats",
    "SubSocket": "sockets",
}

__all__ = [
    "Closed",
    "NotFound",
    "NotSupported",
    "PeerStats",
    "PubSocket",
    "SocketStats",
    "SubSocket",
    "blocking",
]


if not TYPE_CHECKING:  # with this function, type checkers accept every name

    def __getattr__(name: str) -> object:
        if name == "blocking":
            return importlib.import_module(f"{__name__}.blocking")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
