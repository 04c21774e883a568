"""What the user says of itself: sent gently until the server has it, again on a new connection.

PRES-3. One update of a topic is on its way at a time, and none while the server has asked to wait;
what is said meanwhile is one update more, in which the last word on each key counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hanzoai.pubsub.generated.wire import PresenceUpdateFrame
from hanzoai.pubsub.session.effects import Acked, Problem, Send, Settle
from hanzoai.pubsub.session.entry import rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import ErrorFrame
    from hanzoai.pubsub.session.effects import Effect, Outcome, Rejected
    from hanzoai.pubsub.session.peer import Peer

MAX_TOPICS: Final = 10_000
"""Topics of which is kept what was said; the oldest gives way."""

_TAKEN: Final = Acked(())
"""The server acknowledged it, now or at an update that says the same."""


class _Update(NamedTuple):
    """An update on its way, with the calls that wait for it."""

    topic: str | None
    data: dict[str, Any]
    refs: Sequence[int]


class OwnPresence:
    """What was said, by topic; None for all topics."""

    def __init__(self) -> None:
        self._said: dict[str | None, dict[str, Any]] = {}

    def update(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Merge an update: the last word on each key counts; null deletes on the server."""
        if topic is None:
            for other, said in list(self._said.items()):
                self._leave(other, {key: said[key] for key in said if key not in data})
        said = self._said.pop(topic, {})
        self._said[topic] = {**said, **data}
        while len(self._said) > MAX_TOPICS:
            del self._said[next(iter(self._said))]

    def restore(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Merge what was said before all that is here."""
        said = self._said.get(topic, {})
        newer = {**self._said.get(None, {}), **said}
        left = {key: data[key] for key in data if key not in newer}
        if left:
            self._said[topic] = {**left, **said}

    def forget(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Forget what was refused."""
        said = self._said.get(topic)
        if said is not None:
            self._leave(
                topic,
                {key: said[key] for key in said if key not in data or data[key] != said[key]},
            )

    def items(self) -> Iterable[tuple[str | None, dict[str, Any]]]:
        """What to say: first that for all topics, then that for each."""
        return sorted(self._said.items(), key=lambda item: item[0] is not None)

    def __contains__(self, topic: str | None) -> bool:
        return topic in self._said

    def take(self, topic: str | None) -> None:
        """It is said: it waits no more."""
        del self._said[topic]

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Forget what was said on topics that nobody wants any more."""
        self._said = {t: said for t, said in self._said.items() if t is None or wanted(t)}

    def _leave(self, topic: str | None, left: dict[str, Any]) -> None:
        if left:
            self._said[topic] = left
        else:
            del self._said[topic]


class Saying:
    """What the user says of itself.

    Args:
        paused: Whether the server has asked to wait.
    """

    def __init__(self, paused: Callable[[], bool]) -> None:
        self._paused = paused
        self._peer: Peer | None = None
        self._own = OwnPresence()
        self._later = OwnPresence()
        self._waiting: dict[str | None, list[int]] = {}
        self._asked: dict[str, _Update] = {}
        self._busy: set[str | None] = set()
        self._number = 0

    def say(
        self, topic: str | None, data: Mapping[str, Any], ref: int | None, out: list[Effect]
    ) -> None:
        """Say something; `ref` is settled when the server has it."""
        self._own.update(topic, data)
        self._later.update(topic, data)
        if ref is not None:
            self._wait(topic, [ref])
        self._gather(out)
        self.flush(out)

    def connected(self, peer: Peer, out: list[Effect]) -> None:
        """Say on a new connection what was said before."""
        self._peer = peer
        self._later = OwnPresence()
        for topic, data in self._own.items():
            self._later.update(topic, data)
        self._gather(out)
        self.flush(out)

    def flush(self, out: list[Effect]) -> None:
        """Say what waits, as far as it may be said now."""
        peer = self._peer
        if peer is None:
            return
        answers = peer.ref and peer.ack
        for topic, data in list(self._later.items()):
            if answers:
                # What is said of all topics goes neither before nor after what is said of one by
                # chance.
                held = bool(self._busy) if topic is None else None in self._busy
                if held or self._paused():
                    return
                if topic in self._busy:
                    continue
            refs = self._waiting.pop(topic, [])
            self._later.take(topic)
            self._number += 1
            ref = f"m{self._number}"
            frame = PresenceUpdateFrame(topic=topic, data=data, ref=ref if peer.ref else None)
            out.append(Send(frame))
            if answers:
                self._asked[ref] = _Update(topic, data, refs)
                self._busy.add(topic)
            else:
                _settle(refs, _TAKEN, out)

    def answered(self, ref: str | None, out: list[Effect]) -> bool:
        """The server answered; False if nothing is known under the `ref`."""
        update = self._take(ref)
        if update is None:
            return False
        _settle(update.refs, _TAKEN, out)
        self.flush(out)
        return True

    def refused(self, frame: ErrorFrame, out: list[Effect]) -> bool:
        """The server refused, for good; False if nothing is known under the `ref`."""
        update = self._take(frame.ref)
        if update is None:
            return False
        self._own.forget(update.topic, update.data)
        about = frame.topic or update.topic
        if update.refs:
            _settle(update.refs, rejected(frame.model_copy(update={"topic": about})), out)
        else:
            out.append(Problem(frame.code, frame.message, about, frame.retry_after_ms))
        self.flush(out)
        return True

    def postponed(self, ref: str | None, out: list[Effect]) -> bool:
        """The server refused for now: it is said again; False if nothing is known of the `ref`."""
        update = self._take(ref)
        if update is None:
            return False
        self._later.restore(update.topic, update.data)
        self._wait(update.topic, update.refs)
        self._gather(out)
        return True

    def lost(self) -> None:
        """The connection is gone: what was not answered is said again."""
        self._peer = None
        for update in self._asked.values():
            self._wait(update.topic, update.refs)
        self._asked.clear()
        self._busy.clear()

    def settle_all(self, error: Rejected, out: list[Effect]) -> None:
        """The session has ended."""
        self.lost()
        for refs in self._waiting.values():
            _settle(refs, error, out)
        self._waiting.clear()

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Forget what was said on topics that no subscription takes any more."""
        self._own.keep(wanted)

    def _take(self, ref: str | None) -> _Update | None:
        update = None if ref is None else self._asked.pop(ref, None)
        if update is not None:
            self._busy.discard(update.topic)
        return update

    def _wait(self, topic: str | None, refs: Sequence[int]) -> None:
        """Have calls wait for what is going to be said on a topic."""
        every = sorted([*self._waiting.get(topic, ()), *refs])
        if every:
            self._waiting[topic] = every

    def _gather(self, out: list[Effect]) -> None:
        """What was said for all topics since took the words of some: their calls wait for that."""
        for topic, refs in list(self._waiting.items()):
            if topic in self._later:
                continue
            del self._waiting[topic]
            if None in self._later:
                self._wait(None, refs)
            else:
                _settle(refs, _TAKEN, out)


def _settle(refs: Sequence[int], outcome: Outcome, out: list[Effect]) -> None:
    for ref in refs:
        out.append(Settle(ref, outcome))
