"""`httpx` and `httpx_sse`, checked: import them from here.

httpx 1.0 removes the transports and most of the client's options. The dependencies of this package
have no upper bounds, so an installation may contain it.
"""

from __future__ import annotations

from typing import Final

import httpx

from hanzoai.pubsub.errors import UsageError

__all__ = ["EventSource", "httpx"]

_NEEDED: Final = ("AsyncBaseTransport", "AsyncClient", "HTTPTransport", "Limits", "Timeout")


def check(library: object) -> None:
    """Check that this version of httpx has what the package uses.

    Args:
        library: The module `httpx`.

    Raises:
        UsageError: It does not; the message contains its version.
    """
    missing = [name for name in _NEEDED if not hasattr(library, name)]
    if missing:
        version: object = getattr(library, "__version__", "of an unknown version")
        raise UsageError(
            f"httpx {version} is installed, which does not have {missing[0]}.",
            remedy='Install an earlier version: pip install "httpx<1".',
        )


check(httpx)
# httpx_sse fails with an unclear error if httpx does not have what it needs.
from httpx_sse import EventSource  # noqa: E402
