"""The warning that times are probably in milliseconds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.defaults import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("hanzoai.pubsub")

_USUAL: Final[Mapping[str, int]] = {
    "fetch_timeout": CLIENT.fetch_timeout,
    "open_timeout": CLIENT.open_timeout,
    "operation_timeout": CLIENT.operation_timeout,
    "close_timeout": CLIENT.close_timeout,
    "ping_interval": CLIENT.ping_interval,
    "pong_timeout": CLIENT.pong_timeout,
    "suspend_after": CLIENT.suspend_after,
    "refresh_margin": CLIENT.refresh_margin,
    "fallback_after": CLIENT.fallback_after,
    "upgrade_after": CLIENT.upgrade_after,
    "retry.cap": CLIENT.retry_cap,
}
"""The default of each time, in milliseconds."""

_HOUR: Final = 3_600

_warned: Final[set[str]] = set()
"""Options that a warning has named: each is named once."""


def warn_of_milliseconds(settings: Mapping[str, object]) -> None:
    """Log the times of a client that are probably in milliseconds.

    As milliseconds, they are between a quarter and five times of their defaults. Whole hours are
    seconds. A shorter time shows that the program counts seconds; then nothing is logged.
    """
    cap = getattr(settings.get("retry"), "cap", None)
    # The default is not a time that the program wrote.
    given = settings if cap == CLIENT.retry_cap / 1000 else {**settings, "retry.cap": cap}
    found: list[tuple[str, float]] = []
    for name, usual in _USUAL.items():
        time = given.get(name)
        if not isinstance(time, int | float):
            continue
        if time < usual / 4:
            return
        if time <= usual * 5 and time % _HOUR:
            found.append((name, time))
    news = [(name, time) for name, time in found if name not in _warned]
    if not news:
        return
    _warned.update(name for name, _ in news)
    time = news[0][1]
    logger.warning(
        "%s. Times are in seconds: for %g ms, pass %g.",
        ", and ".join(f"`{name}` is {time:g} s" for name, time in news),
        time,
        time / 1000,
    )
