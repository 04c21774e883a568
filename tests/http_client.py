"""The HTTP client of the tests. Only the test bounds its requests, not the default of httpx."""

from __future__ import annotations

from typing import Any

import httpx


def http_client(**options: Any) -> httpx.AsyncClient:
    """Return a client whose requests have no timeout of their own.

    The default of httpx is five seconds, in which a busy machine may not answer.

    Args:
        **options: Arguments of `httpx.AsyncClient`.
    """
    return httpx.AsyncClient(timeout=None, **options)
