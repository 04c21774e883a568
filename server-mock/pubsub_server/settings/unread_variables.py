"""Finds variables of the environment that look like settings, and that nothing reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pubsub_server.settings.sources import CLIENT_VARIABLES, PREFIX, closest, with_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KUBERNETES: Final = re.compile(
    r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Kubernetes sets these for services whose names begin with `hanzo-pubsub`."""


def unread_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A warning for each variable with the prefix of the settings that the server ignores.

    The server does not start with one whose name is similar to that of a setting.
    """
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or not value:
            continue
        is_known = name in CLIENT_VARIABLES or closest(name.lower()) is not None
        # Kubernetes also sets `…_PORT`, to a URL.
        if is_known or name.startswith("TEST_") or "://" in value or _KUBERNETES.fullmatch(name):
            continue
        names = [PREFIX + each.upper() for each in with_word(name.lower())]
        hint = f"did you mean {' or '.join(names)}?" if names else "leave it out"
        yield f"{variable}: there is no such setting, so the server ignores it; {hint}"
