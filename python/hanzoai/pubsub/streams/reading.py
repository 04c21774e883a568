"""Logic of a stream reader: selects the frames that count, and builds the answer.

Pure: every method is a step that takes the time in milliseconds and returns effects. The parts are
a prefix of the answer, or `stale` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from hanzoai.pubsub.streams.parts import (
    Part,
    add_piece,
    grow,
    is_list,
    is_object,
    is_piece,
    parts_of,
    split_pair,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELD: Final = 64
"""Maximum tokens that wait for missing ones before them."""
PATIENCE: Final = 500
"""Milliseconds to wait for a missing token."""
SILENCE: Final = 10_000
"""Milliseconds without a frame until a stream is stalled; the next report takes twice as long."""
EPOCH_MAX: Final = 2**53 - 1
"""Highest epoch, index and count: whole numbers up to this are exact in every language."""


class Incoming(TypedDict):
    """A message of the topic; `sender` is empty if the server sends none."""

    type: str
    data: Any
    sender: str


class Start(TypedDict):
    """The stream has begun, and has no text yet."""

    kind: Literal["start"]
    meta: Any


class Delta(TypedDict):
    """The answer has grown."""

    kind: Literal["delta"]
    pieces: list[Any]


class Snapshot(TypedDict):
    """The whole answer, which differs from the deltas so far."""

    kind: Literal["snapshot"]


class Gap(TypedDict):
    """Tokens are missing: the view is stale until the next snapshot."""

    kind: Literal["gap"]
    first: int
    last: int


class Stalled(TypedDict):
    """No frame has arrived for a while."""

    kind: Literal["stalled"]
    ms: int


class Done(TypedDict):
    """The answer is complete."""

    kind: Literal["done"]
    count: int
    reason: str
    usage: Any


class Aborted(TypedDict):
    """The writer ended the stream before the answer was complete."""

    kind: Literal["aborted"]
    count: int
    reason: str
    by: str


class Heal(TypedDict):
    """Fetch the retained messages of the topic, and pass them to `healed`."""

    kind: Literal["heal"]


ReaderEffect: TypeAlias = Start | Delta | Snapshot | Gap | Stalled | Done | Aborted | Heal


class Reading:
    """One stream, from the view of a reader.

    Args:
        want: Id of the stream; `latest` for the newest, `next` for the first one that begins later.
        sender: Only frames of this sender count; empty for that of the first frame.

    Attributes:
        stream: Id of the stream; empty for one of a plain producer, None before there is one.
        epoch: Epoch of the writer.
        next: Number of tokens in the parts.
        parts: The answer so far.
        stale: Whether tokens are missing.
        based: Whether the beginning of the answer, or a snapshot, was seen.
        meta: The `meta` of the start.
        ended: Whether the end has arrived.
        ignored: Number of ignored frames: not valid, or from another writer.
        foreign: Who sent the newest frame of the stream that is not of the sender.
        due: Time of the next `tick`, in milliseconds; None for never.
    """

    def __init__(self, want: str = "latest", sender: str = "") -> None:
        self.stream: str | None = None if want in ("latest", "next") else want
        self.epoch = -1
        self.next = 0
        self.parts: list[Part] = []
        self.stale = False
        self.based = False
        self.meta: Any = None
        self.ended = False
        self.ignored = 0
        self.foreign: str | None = None
        self.due: int | None = None
        self.want = want
        self._sender = sender
        self._seen: set[str] = set()
        self._writer: str | None = None
        self._half = ""
        self._held: dict[int, list[Any]] = {}
        self._since: int | None = None
        self._received: int | None = None
        self._silence = SILENCE
        self._fetching = False
        self._outdated = False

    @property
    def text(self) -> str:
        """The text of the parts."""
        return text_of(self.parts)

    def begin(self, messages: Sequence[Incoming], at: int) -> list[ReaderEffect]:
        """Process the messages that were retained when the reader joined, before all others."""
        keys = [_key(message) for message in messages if self._counts(message)]
        named = [key for key in keys if key is not None]
        if self.want == "next":
            self._seen = set(named)
            return []
        if self.want == "latest" and named:
            self.stream = list(dict.fromkeys(named))[-1]
        if self.stream is not None:
            self._received = at
        return self._receive_all(self._newest_answer(messages), at)

    def take(self, message: Incoming, at: int) -> list[ReaderEffect]:
        """Process a message of the topic."""
        return self._receive_all([message], at)

    def lost(self, at: int) -> list[ReaderEffect]:
        """Messages of the topic were lost in transit."""
        effects: list[ReaderEffect] = []
        if self.stream is not None and not self.ended:
            self._heal(effects)
        return effects

    def healed(self, messages: Sequence[Incoming], at: int) -> list[ReaderEffect]:
        """Process the fetched retained messages."""
        newest, received, silence = self._newest(), self._received, self._silence
        outdated = self._outdated
        effects = self._receive_all(self._newest_answer(messages), at)
        # What this history lacks, another request just after it would lack, too.
        self._fetching = self._outdated = False
        if self._newest() == newest:
            # Frames that the reader already had don't show that the writer is alive.
            self._received, self._silence = received, silence
        if outdated and not self.ended:
            self._heal(effects)
        elif not self.ended:
            self._give_up(effects)
        self._set_due()
        return effects

    def tick(self, at: int) -> list[ReaderEffect]:
        """Run what is due; call it at the time `due`."""
        effects: list[ReaderEffect] = []
        if self._since is not None and at >= self._since + PATIENCE:
            self._give_up(effects)
        if self._received is not None and at >= self._received + self._silence:
            effects.append({"kind": "stalled", "ms": at - self._received})
            self._heal(effects)
            self._silence *= 2
        self._set_due()
        return effects

    # ---------------------------------------------------------------- inside

    def _heal(self, effects: list[ReaderEffect]) -> None:
        """Fetch the history; afterwards again, if a running request may lack what is missing."""
        if self._fetching:
            self._outdated = True
        else:
            effects.append({"kind": "heal"})
        self._fetching = True

    def _newest(self) -> tuple[int, int]:
        """How far the frames reach that have arrived: the epoch, and an index in it."""
        # An answer of a plain producer is read again from its beginning, as another epoch.
        return self.epoch if self.stream else 0, max(self._held, default=self.next)

    def _newest_answer(self, messages: Sequence[Incoming]) -> Sequence[Incoming]:
        """Leave out earlier answers of a plain producer: they have no id, and begin with index 0.

        The messages of any other producer stay as they are.
        """
        if self.stream != "":
            return messages
        starts = [n for n, one in enumerate(messages) if self._counts(one) and _begins(one)]
        return messages[max(starts, default=0) :]

    def _receive_all(self, messages: Sequence[Incoming], at: int) -> list[ReaderEffect]:
        effects: list[ReaderEffect] = []
        for message in messages:
            key = _key(message)
            if self.ended or key is None:
                continue
            new = key not in self._seen or _begins(message)
            if self.stream is None and new and self._counts(message):
                self.stream = key
            if key == self.stream and not self._receive_frame(message, effects, at):
                self.ignored += 1
        self._set_due()
        return effects

    def _counts(self, message: Incoming) -> bool:
        """Whether it is from the sender of the stream, if that is known."""
        return not self._sender or message["sender"] == self._sender

    def _set_due(self) -> None:
        times = [
            None if self._since is None else self._since + PATIENCE,
            None if self._received is None else self._received + self._silence,
        ]
        known = [time for time in times if time is not None]
        self.due = min(known) if known and not self.ended else None

    def _receive_frame(self, message: Incoming, effects: list[ReaderEffect], at: int) -> bool:
        """Process a frame of the stream; returns whether it counted."""
        type, data, sender = message["type"], message["data"], message["sender"]
        plain = self.stream == ""
        epoch = max(self.epoch, 0) if plain else data.get("epoch")
        writer = data.get("writer", "")
        # Held tokens are of an earlier answer if they have waited in vain.
        if plain and (self.next or self.stale) and _begins(message):
            epoch += 1
        if not _is_count(epoch) or not isinstance(writer, str) or epoch < self.epoch:
            return False
        if not self._counts(message):
            self.foreign = sender
            return False
        if epoch == self.epoch and writer != self._writer:
            return False
        count = data.get({"token": "index", "token.snapshot": "upto"}.get(type, "count"))
        if type == "message.complete" and plain:
            count = self.next
        if type != "stream.start" and not _is_count(count):
            return False
        parts = parts_of(data)
        pieces = [data.get("content"), *_list(data.get("pieces", []))]
        if type == "token.snapshot" and parts is None:
            return False
        if type == "token" and not all(is_piece(piece) for piece in pieces):
            return False
        self._sender = self._sender or sender
        self._received, self._silence = at, SILENCE
        if epoch > self.epoch:
            # Another writer takes over, from the start or from a snapshot.
            self._reset(epoch, writer)
            if type in ("token", "stream.start"):
                if self.parts:
                    effects.append({"kind": "snapshot"})
                self.parts = []
        if "meta" in data:
            self.meta = data["meta"]
        if type == "stream.start":
            if not self.based:
                effects.append({"kind": "start", "meta": self.meta})
            self.based = True
        elif type == "token":
            self._token(count, pieces, effects, at)
        elif type == "token.snapshot":
            if self.based and count <= self.next:
                return True
            self._replace(parts or [], count)
            self.based = True
            effects.append({"kind": "snapshot"})
            self._drain(effects)
        else:
            self._finish(type, data, parts, count, effects)
        return True

    def _reset(self, epoch: int, writer: str) -> None:
        self.epoch, self._writer = epoch, writer
        self.based = False
        self._held.clear()
        self._replace(self.parts, 0)

    def _replace(self, parts: list[Part], count: int) -> None:
        self.parts = parts
        self.next = count
        self.stale = False
        self._since = None
        self._half = ""

    def _token(self, index: int, pieces: list[Any], effects: list[ReaderEffect], at: int) -> None:
        self.based = self.based or index == 0
        self._held[index] = pieces
        if index <= self.next:
            self._drain(effects)
            return
        if not self.stale and (self._since is None or index - 1 not in self._held):
            self._since = at if self._since is None else self._since
            if self.based:
                self._heal(effects)
        if len(self._held) > HELD:
            self._give_up(effects)
            del self._held[min(self._held)]

    def _drain(self, effects: list[ReaderEffect]) -> None:
        """Apply the held tokens that are next."""
        applied: list[Any] = []
        for index in [index for index in self._held if index < self.next]:
            del self._held[index]
        while (pieces := self._held.pop(self.next, None)) is not None:
            self.next += 1
            for piece in pieces:
                self._apply(piece, applied)
        if applied:
            effects.append({"kind": "delta", "pieces": applied})
        if not self._held:
            self._since = None
            self.stale = False

    def _apply(self, piece: Any, pieces: list[Any]) -> None:
        if isinstance(piece, str) or "type" not in piece:
            text = piece if isinstance(piece, str) else piece["text"]
            whole, self._half = split_pair(self._half + text)
            if not whole:
                return
            piece = whole if isinstance(piece, str) else {"text": whole}
        else:
            self._half = ""
        grow(self.parts, piece)
        add_piece(pieces, piece)

    def _give_up(self, effects: list[ReaderEffect]) -> None:
        """Report missing tokens, once until the view is complete again."""
        self._since = None
        if not self.stale and self._held:
            self.stale = True
            effects.append({"kind": "gap", "first": self.next, "last": min(self._held) - 1})

    def _finish(
        self,
        type: str,
        data: Mapping[str, Any],
        parts: list[Part] | None,
        count: int,
        effects: list[ReaderEffect],
    ) -> None:
        if parts is None:
            self.stale = self.stale or count != self.next
        else:
            if parts != self.parts:
                # Deltas alone do not show the tokens that were lost before the end.
                effects.append({"kind": "snapshot"})
            self._replace(parts, count)
        self.ended = True
        if type == "message.complete":
            reason = _word(data.get("finish_reason"), "stop")
            usage = data.get("usage")
            effects.append({"kind": "done", "count": count, "reason": reason, "usage": usage})
        else:
            reason, by = _word(data.get("reason"), "error"), _word(data.get("by"), "")
            effects.append({"kind": "aborted", "count": count, "reason": reason, "by": by})


_TYPES: Final = ("token", "token.snapshot", "message.complete", "stream.start", "stream.abort")


def _key(message: Incoming) -> str | None:
    """Return the stream id of a frame; empty for a plain producer."""
    data = message["data"]
    if not is_object(data) or message["type"] not in _TYPES:
        return None
    stream = data.get("stream", "" if message["type"] in ("token", "message.complete") else None)
    named = isinstance(stream, str) and (stream or "stream" not in data)
    return stream if named else None


def _begins(message: Incoming) -> bool:
    """Whether it begins an answer of a plain producer, whose answers have no id."""
    return message["type"] == "token" and _key(message) == "" and message["data"].get("index") == 0


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= EPOCH_MAX


def _list(value: object) -> list[Any]:
    return value if is_list(value) else [None]


def _word(value: object, other: str) -> str:
    return value if isinstance(value, str) else other


__all__ = ["EPOCH_MAX", "Incoming", "ReaderEffect", "Reading"]
