"""What this node has delivered of each topic: in order, nothing twice, and where something lacks.

Pure: it decides, `deliveries.py` fetches. A jump in the positions means that a message was lost on
the way; it is fetched from the log before what follows it is delivered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pubsub_server.backplane import Entry

HELD_MAX: Final = 10_000
"""Messages that wait for a hole before them; then the log alone knows what follows."""


class Track:
    """Where one topic is on this node.

    Attributes:
        topic: Which.
        last: Position of the newest message that was delivered; 0 where there was no log yet, None
            while the topic is opening.
        held: Messages that wait, oldest first, while the topic is opening or is being healed;
            None otherwise.
        overflow: Some of what waited was let go of: the log has it.
        unproven: The log has not been asked yet for what precedes the first message.
    """

    __slots__ = ("held", "last", "overflow", "topic", "unproven")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last: int | None = None
        self.held: list[Entry] | None = None
        self.overflow = False
        self.unproven = False

    def hold(self, entry: Entry) -> None:
        """Keep it for later."""
        if self.held is None:
            self.held = []
        if len(self.held) < HELD_MAX:
            self.held.append(entry)
        else:
            self.overflow = True


class Journal:
    """Where topics stood when a replay was asked for, of those that have moved since."""

    def __init__(self) -> None:
        self.before: dict[str, int] = {}


class Tracks:
    """All topics of one node.

    Args:
        remembered: Topics that no one subscribes to by name; those of patterns.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._named: dict[str, Track] = {}
        self._others: OrderedDict[str, Track] = OrderedDict()
        self._journals: set[Journal] = set()

    def __len__(self) -> int:
        return len(self._named) + len(self._others)

    def __contains__(self, topic: str) -> bool:
        return topic in self._named or topic in self._others

    @property
    def named(self) -> Iterable[Track]:
        """Those that someone subscribes to by name."""
        return self._named.values()

    @property
    def waiting(self) -> bool:
        """Whether messages of a topic wait until it is opened or healed."""
        tracks = (*self._named.values(), *self._others.values())
        return any(track.held is not None for track in tracks)

    def get(self, topic: str) -> Track | None:
        """The track of a topic, if it has one."""
        return self._named.get(topic) or self._others.get(topic)

    # ------------------------------------------------------------ who wants what

    def join(self, topic: str) -> None:
        """Someone subscribes to it by name: it is opened, and what comes waits until it is."""
        track = self._others.pop(topic, None)
        if track is None:
            track = Track(topic)
            track.held = []
        self._named[topic] = track

    def leave(self, topic: str, *, keep: bool) -> None:
        """No one does any more: it is forgotten, unless patterns may match it."""
        track = self._named.pop(topic)
        if keep and track.last is not None:
            self._remember(track)

    def forget_others(self) -> None:
        """No pattern is subscribed to any more: only what is named comes."""
        self._others.clear()

    # ------------------------------------------------------------ what comes

    def hold(self, topic: str) -> Track:
        """Begin the track of a topic that a pattern matches; what comes waits for `settle`.

        If the topic is opening, what waits for that waits on.
        """
        track = self._named.get(topic)
        if track is None:
            track = Track(topic)
            self._remember(track)
        track.last, track.held, track.unproven = 0, track.held or [], True
        return track

    def take(self, entry: Entry) -> tuple[bool, Track | None]:
        """A message has come.

        Returns:
            Whether it is delivered now; and the track that has to be healed, where a hole was found
            before it.
        """
        seq = entry.seq
        if seq is None:
            return True, None
        track = self.get(entry.topic)
        if track is None:
            track = Track(entry.topic)
            self._remember(track)
        elif track.held is not None:
            track.hold(entry)
            return False, None
        last = track.last
        if last is not None:
            if seq <= last:
                return False, None
            # Where there was no log, the position does not show whether others precede it.
            if seq > last + 1:
                track.hold(entry)
                return False, track
        self._advance(track, seq)
        if track.topic in self._others:
            self._others.move_to_end(track.topic)
        return True, None

    def settle(
        self, track: Track, last: int | None, found: Iterable[Entry] = ()
    ) -> tuple[list[Entry], bool]:
        """The log was asked: what is to be delivered now, and whether a hole is left.

        While the track opens, the log goes to the subscribers that replay it. What waited is
        delivered: other subscribers may not have it.

        Args:
            track: One whose messages wait.
            last: Newest position of the log as it was asked; None where there is none.
            found: What the log had behind `Track.last`, oldest first.
        """
        held, track.held = track.held or [], None
        track.unproven = False
        overflow, track.overflow = track.overflow, False
        if track.last is None:
            last = track.last = min([last or 0, *((entry.seq or 0) - 1 for entry in held)])
            self._note(track.topic, last)
        waiting = {entry.seq or 0: entry for entry in (*found, *held)}
        ready: list[Entry] = []
        order = sorted(seq for seq in waiting if seq > track.last)
        for index, seq in enumerate(order):
            if last is not None and seq > last:
                # What the log does not have up to there is gone; what is lacking behind it is not.
                if track.last < last:
                    self._advance(track, last)
                if seq > track.last + 1:
                    track.held = [waiting[each] for each in order[index:]]
                    track.overflow = overflow
                    return ready, True
            self._advance(track, seq)
            ready.append(waiting[seq])
        if last is not None and track.last < last:
            if not track.last:
                # Nothing of this log is delivered here: all of it is for replays.
                self._note(track.topic, last)
            self._advance(track, last)
        if overflow:
            track.held = []
        return ready, overflow

    # ------------------------------------------------------------ replays

    def begin(self) -> Journal:
        """Note from now on where topics was before they moved."""
        journal = Journal()
        self._journals.add(journal)
        return journal

    def end(self, journal: Journal) -> None:
        """It is needed no more."""
        self._journals.discard(journal)

    def stood(self, journal: Journal, topic: str) -> int | None:
        """The position that the node had delivered as the replay was asked for.

        It delivers all later messages to the subscriber.

        Args:
            journal: Begun when it subscribed.
            topic: Which.

        Returns:
            The position; None where the node does not know.
        """
        before = journal.before.get(topic)
        if before is not None:
            return before
        track = self.get(topic)
        return None if track is None or track.unproven else track.last

    @staticmethod
    def unread(journal: Journal, read: Mapping[str, int]) -> set[str]:
        """Topics whose log has to be read again, because replays of others read more of it.

        What a topic had until it was opened is not delivered: each replay that was asked for
        before that takes it from the log.

        Args:
            journal: Begun when the subscriber came.
            read: Up to which position each log was read.
        """
        return {topic for topic, last in read.items() if last < journal.before.get(topic, last)}

    def delivers(self, topic: str, position: int) -> bool:
        """Whether messages up to this position may still be delivered."""
        track = self.get(topic)
        return track is None or track.unproven or (track.last or 0) < position

    # ------------------------------------------------------------ inside

    def _advance(self, track: Track, seq: int) -> None:
        if self._journals:
            self._note(track.topic, track.last or seq - 1)
        track.last = seq

    def _note(self, topic: str, before: int) -> None:
        for journal in self._journals:
            journal.before.setdefault(topic, before)

    def _remember(self, track: Track) -> None:
        self._others[track.topic] = track
        if len(self._others) > self._remembered:
            _, gone = self._others.popitem(last=False)
            if gone.held is not None:
                self._others[gone.topic] = gone
