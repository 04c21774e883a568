"""What the server refuses of subscriptions, for good or for now. HIP-56 H-046."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.generated.wire import Denial
from hanzoai.pubsub.session.effects import Joined, PresenceChanged
from hanzoai.pubsub.session.requests import Requests
from hanzoai.pubsub.topics import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import ErrorFrame
    from hanzoai.pubsub.session.effects import Effect
    from hanzoai.pubsub.session.join import Join

REFUSED_FOR_NOW: Final = 1_000
"""Milliseconds to wait where a server refuses a subscription for now and names no time."""

MAX_DOUBTS: Final = 5
"""Times that an `error` may be about a publish instead, before it is about the subscription; once
where it names a topic of the subscription."""

_OF_PUBLISH: Final = frozenset(
    {"rate_limited", "payload_too_large", "invalid_payload", "conflict", "slow_consumer"}
)
"""Codes that cannot be the answer to a `subscribe`."""


class Refusals(Requests):
    """Subscriptions that may be refused."""

    def failed(
        self, frame: ErrorFrame, about_publish: Callable[[str | None], bool], out: list[Effect]
    ) -> bool:
        """The server refused; False if that answers no `subscribe`, or nobody can tell.

        Args:
            frame: What it says.
            about_publish: Whether an `error` without a `ref` may be about a publish. Then the
                subscription is asked for once more after a while, and is refused in the end.
            out: Effects.
        """
        ref = frame.ref
        if ref is None:
            if self._peer is None or self._peer.ref or frame.code in _OF_PUBLISH:
                return False
            ref = self._asks.refused_by(frame.topic)
        join = None if ref is None else self._asks.get(ref)
        if ref is None or join is None:
            return False
        doubts = MAX_DOUBTS if frame.topic is None else 1
        if frame.ref is None and join.doubts < doubts and about_publish(frame.topic):
            if not join.again:
                join.again = True
                join.doubts += 1
                self._later(REFUSED_FOR_NOW)
            return False
        self._asks.drop(ref)
        if join.ask != ref:
            return True
        join.forget()
        if _for_now(frame.code):
            self._later(max(REFUSED_FOR_NOW, frame.retry_after_ms or 0))
            return True
        refused = list(join.patterns)
        if frame.topic in join.patterns and len(join.patterns) > 1:
            refused = [frame.topic]
        join.denied += [Denial(topic=p, code=frame.code, message=frame.message) for p in refused]
        self._deny(join, refused)
        if join.patterns:
            self._request(join, out)
        else:
            out.append(Joined(join.sub, (), tuple(join.denied)))
        return True

    def _take_denied(self, join: Join, out: list[Effect]) -> bool:
        """Take what an answer denies, tell what it grants; whether any pattern is in force."""
        denied = [d for d in join.denied if not _for_now(d.code)]
        later = {d.topic for d in join.denied if _for_now(d.code)}
        join.denied = []
        self._deny(join, [denial.topic for denial in denied])
        granted = tuple(pattern for pattern in join.patterns if pattern not in later)
        if len(granted) < len(join.patterns):
            join.again = True
            self._later(REFUSED_FOR_NOW)
            if not granted:
                join.forget()
                join.denied = denied
                return False
            # What comes of the others by other subscriptions is going to be replayed.
            join.unrouted = True
            for pattern in later:
                self._routes.remove(pattern, join)
            if join.event.presence:
                self._hide(join, granted, out)
            join.held = [m for m in join.held if m.seq is None or _take(granted, m.topic)]
        if not join.quiet or denied:
            out.append(Joined(join.sub, granted, tuple(denied)))
        return bool(granted)

    def _hide(self, join: Join, granted: Sequence[str], out: list[Effect]) -> None:
        """Nobody tells this one any more who is present where it was refused for now."""
        for topic in self.presence.occupied():
            if join.takes(topic) and not _take(granted, topic):
                out.append(PresenceChanged(join.sub, topic, (), "snapshot"))
        self.presence.keep(self._has_watcher)

    def _deny(self, join: Join, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if pattern in join.patterns:
                join.patterns.remove(pattern)
                self._routes.remove(pattern, join)
        if patterns and not join.patterns:
            self._remove(join)


def _take(patterns: Sequence[str], topic: str) -> bool:
    return any(matches(pattern, topic) for pattern in patterns)


def _for_now(code: str) -> bool:
    """Whether a refusal is worth another try by itself."""
    known = CODES.get(code)
    return known is not None and known.retryable
