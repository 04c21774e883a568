"""Name and version of this client, sent in `auth` and in `User-Agent`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final


def _installed() -> str:
    try:
        return metadata.version("hanzoai.pubsub")
    except metadata.PackageNotFoundError:  # shipped as a plain folder, as Spark's --py-files does
        return "0"


VERSION: Final = _installed()
USER_AGENT: Final = f"hanzoai.pubsub/{VERSION} python/{platform.python_version()}"
