"""Tracks the delivered position of each topic: order, duplicates and gaps.

Pure logic: it decides, and `deliveries.py` reads. A jump in the positions means that a message was
lost in transit; it is read from the log before later messages are delivered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pubsub_server.backplane import Entry

HELD_MAX: Final = 10_000
"""Maximum messages that wait for a gap before them; later ones are read from the log."""


class Track:
    """The state of one topic on this node.

    Attributes:
        topic: Its name.
        last: Position of the newest delivered message; 0 if there was no log yet, None while the
            topic is opening.
        held: Messages that wait, oldest first, while the topic is opening or is being healed;
            None otherwise.
        overflow: Whether waiting messages were dropped, because the log has them.
        unproven: Whether the log has not been read yet for messages before the first one.
        replayed: Lowest position of the replays that were answered while it is unproven; None
            without one.
    """

    __slots__ = ("held", "last", "overflow", "replayed", "topic", "unproven")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last: int | None = None
        self.held: list[Entry] | None = None
        self.overflow = False
        self.unproven = False
        self.replayed: int | None = None

    @property
    def owed(self) -> int | None:
        """The position after which an unproven track must deliver everything; None for none."""
        if not self.held:
            return self.replayed
        before = (self.held[0].seq or 0) - 1
        return before if self.replayed is None else min(before, self.replayed)

    def replay(self, position: int) -> None:
        """A subscriber gets a replay that ends at this position, and all messages after it."""
        if self.unproven:
            self.replayed = position if self.replayed is None else min(self.replayed, position)

    def hold(self, entry: Entry) -> None:
        """Hold a message; the track waits."""
        assert self.held is not None
        if len(self.held) < HELD_MAX:
            self.held.append(entry)
        else:
            self.overflow = True


class Journal:
    """Positions of topics when a replay was requested, for topics that have moved since."""

    def __init__(self) -> None:
        self.before: dict[str, int] = {}


class Tracks:
    """All topics of one node.

    Args:
        remembered: Maximum topics without a subscriber by name, which patterns match.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._named: dict[str, Track] = {}
        self._others: OrderedDict[str, Track] = OrderedDict()
        self._journals: set[Journal] = set()
        # Tracks with `held`.
        self._waiting: set[Track] = set()

    def __len__(self) -> int:
        return len(self._named) + len(self._others)

    def __contains__(self, topic: str) -> bool:
        return topic in self._named or topic in self._others

    @property
    def named(self) -> Iterable[Track]:
        """The topics that a client subscribes to by name."""
        return self._named.values()

    @property
    def waiting(self) -> bool:
        """Whether messages of a topic wait until it is open or healed."""
        return bool(self._waiting)

    def get(self, topic: str) -> Track | None:
        """The track of a topic, if it has one."""
        return self._named.get(topic) or self._others.get(topic)

    # ------------------------------------------------------------ who wants what

    def join(self, topic: str) -> None:
        """The first client subscribes by name: open the topic, and hold messages until then."""
        track = self._others.pop(topic, None)
        if track is None:
            track = Track(topic)
            self.wait(track)
        self._named[topic] = track

    def leave(self, topic: str, *, keep: bool) -> bool:
        """The last client by name has left: remove the track, unless patterns match it.

        Returns:
            Whether messages for the patterns wait, because the topic is still opening.
        """
        track = self._named.pop(topic)
        opening = track.last is None
        if not keep or (opening and not track.held):
            self._waiting.discard(track)
            return False
        self._remember(track)
        return opening

    def forget_others(self) -> None:
        """The last pattern has ended: keep only topics that are subscribed to by name."""
        self._waiting.difference_update(self._others.values())
        self._others.clear()

    # ------------------------------------------------------------ what comes

    def wait(self, track: Track) -> None:
        """Hold the messages of a track until `release`."""
        if track.held is None:
            track.held = []
        self._waiting.add(track)

    def hold(self, topic: str) -> Track:
        """Begin the track of a topic that a pattern matches; its messages wait for `settle`.

        If the topic is opening, waiting messages continue to wait.
        """
        track = self.get(topic)
        if track is None:
            track = Track(topic)
            self._remember(track)
        self.wait(track)
        track.last, track.unproven = 0, True
        return track

    def receive(self, entry: Entry) -> tuple[bool, Track | None]:
        """A message has arrived.

        Returns:
            Whether to deliver it now; and the track to heal, if there is a gap before it.
        """
        seq = entry.seq
        if seq is None:
            return True, None
        topic = entry.topic
        # This runs for each message, so it looks up and advances without a call.
        track = self._named.get(topic) or self._others.get(topic)
        if track is None:
            track = Track(topic)
            self._remember(track)
        elif track.held is not None:
            track.hold(entry)
            return False, None
        last = track.last
        if last is not None:
            if seq <= last:
                return False, None
            # Without a log, the position does not show whether there are earlier messages.
            if seq > last + 1:
                self.wait(track)
                track.hold(entry)
                return False, track
        if self._journals:
            self._note(topic, last or seq - 1)
        track.last = seq
        if topic in self._others:
            self._others.move_to_end(topic)
        return True, None

    def release(
        self, track: Track, last: int | None, found: Iterable[Entry] = ()
    ) -> tuple[list[Entry], bool]:
        """The log was read: the messages to deliver now, and whether a gap remains.

        While the track opens, only subscribers that replay receive the log. The waiting messages
        are delivered, because other subscribers may not have them.

        Args:
            track: A track whose messages wait.
            last: Newest position of the log when it was read; None if there is no log.
            found: Messages of the log after `Track.last`, oldest first.
        """
        held, track.held = track.held or [], None
        self._waiting.discard(track)
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
                # Messages up to this position that the log does not have are gone; later ones are
                # not.
                self._skip(track, last)
                if seq > track.last + 1:
                    self.wait(track)
                    track.held = [waiting[each] for each in order[index:]]
                    track.overflow = overflow
                    return ready, True
            self._advance(track, seq)
            ready.append(waiting[seq])
        if last is not None:
            self._skip(track, last)
        if overflow:
            self.wait(track)
        return ready, overflow

    # ------------------------------------------------------------ replays

    def begin(self) -> Journal:
        """Record the positions of topics before they move."""
        journal = Journal()
        self._journals.add(journal)
        return journal

    def end(self, journal: Journal) -> None:
        """End the record."""
        self._journals.discard(journal)

    def live_after(self, journal: Journal, topic: str) -> int | None:
        """The position that the node had delivered when the replay was requested.

        It delivers all later messages to the subscriber.

        Args:
            journal: Begun when the client subscribed.
            topic: Its name.

        Returns:
            The position; None if it is unknown.
        """
        before = journal.before.get(topic)
        if before is not None:
            return before
        track = self.get(topic)
        return None if track is None or track.unproven else track.last

    def unproven(self, topic: str) -> bool:
        """Whether messages of a topic wait for a search for earlier ones."""
        track = self.get(topic)
        return track is not None and track.unproven

    @staticmethod
    def unread(journal: Journal, read: Mapping[str, int]) -> set[str]:
        """Topics whose log must be read again, because other replays read more of it.

        Messages from before the topic was open are not delivered: each replay requested earlier
        reads them from the log.

        Args:
            journal: Begun when the client subscribed.
            read: The position up to which each log was read.
        """
        return {topic for topic, last in read.items() if last < journal.before.get(topic, last)}

    def delivers(self, topic: str, position: int) -> bool:
        """Whether messages up to this position may still be delivered."""
        track = self.get(topic)
        return track is None or track.unproven or (track.last or 0) < position

    # ------------------------------------------------------------ inside

    def _skip(self, track: Track, last: int) -> None:
        """The log has no more messages to deliver up to this position."""
        if (track.last or 0) < last:
            if not track.last:
                # Nothing of this log is delivered: it is for replays.
                self._note(track.topic, last)
            self._advance(track, last)

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
