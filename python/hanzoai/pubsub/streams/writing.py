"""Logic of a stream writer: chooses the next frame, and its time.

Pure: every method is a step that takes the time in milliseconds and returns effects. The caller
publishes, keeps one timer for `due`, and reports the result of each publish.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from hanzoai.pubsub.errors import InvalidPayload
from hanzoai.pubsub.streams.parts import (
    Part,
    add_piece,
    body_of,
    grow,
    is_object,
    is_piece,
    split_pair,
)
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hanzoai.pubsub.streams.reading import Incoming

WINDOW: Final = 40
"""Minimum milliseconds between two tokens."""
WIDEST: Final = 500
"""Maximum window after rate errors, in milliseconds."""
EVERY: Final = 40
"""Tokens after which a snapshot is due."""
INTERVAL: Final = 1_500
"""Milliseconds after which a snapshot is due, even while the writer pauses."""
SELDOM: Final = 5_000
"""Maximum milliseconds between two snapshots."""
UNSENT: Final = 65_536
"""Bytes that may wait to be sent before `write` waits."""
LARGEST: Final = 196_608
"""Maximum bytes of an answer as JSON, so that a frame with all of it fits in a payload."""
PATIENCE: Final = 60_000
"""Milliseconds without a successful publish after which the writer gives up."""
SLOW: Final = 1_000
"""Milliseconds that a publish may wait before the writer reports it."""
TTL: Final = 120
"""Seconds that the history keeps tokens and snapshots."""
TTL_END: Final = 3_600
"""Seconds that the history keeps the end of a stream."""
_UNSENDABLE: Final = ("invalid_payload", "payload_too_large")
"""Errors that the content of a frame causes."""
WISHES: Final = ("stream.cancel", "stream.steer")
"""Types of the messages that readers send to the writer."""


class Publish(TypedDict):
    """Publish a frame, and report the result with `sent` or `failed`."""

    kind: Literal["publish"]
    type: str
    id: str
    ttl: int
    data: dict[str, Any]


class Refused(TypedDict):
    """The written piece is not valid; the writer ends the stream."""

    kind: Literal["refused"]
    code: Literal["invalid_payload", "payload_too_large"]


class Failed(TypedDict):
    """The writer has given up and publishes no more frames."""

    kind: Literal["failed"]
    code: str


class Cancelled(TypedDict):
    """A reader wants the stream to end."""

    kind: Literal["cancelled"]
    reason: str
    by: str


class Steered(TypedDict):
    """A reader sends data to the writer."""

    kind: Literal["steered"]
    data: Any
    by: str


class Slowed(TypedDict):
    """Publishes have waited for longer than a second; reported once."""

    kind: Literal["slowed"]
    ms: int


WriterEffect: TypeAlias = Publish | Refused | Failed | Cancelled | Steered | Slowed
EndKind: TypeAlias = Literal["complete", "abort"]


class Writing:
    """One stream, from the view of its writer.

    Args:
        stream: Id of the stream.
        epoch: Higher than that of any earlier writer of the stream.
        writer: A word that is unique to this writer.
        base: Number of tokens that earlier writers published; None starts again.
        parts: The parts of these tokens.
        meta: JSON that readers receive with the start.
        window: Minimum milliseconds between two tokens.

    Attributes:
        due: Time of the next `tick`, in milliseconds; None for never.
        full: Whether the program must wait before it writes more.
        ended: Whether the stream accepts no more pieces.
        parts: The answer so far, including unpublished parts.
        stats: Counters of publishes, failures and delays.
    """

    def __init__(
        self,
        stream: str,
        epoch: int,
        writer: str,
        *,
        base: int | None = None,
        parts: Sequence[Part] = (),
        meta: Mapping[str, Any] | None = None,
        window: int = WINDOW,
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self.due: int | None = None
        self.full = False
        self.ended = False
        self.parts: list[Part] = [dict(part) for part in parts]
        self.stats = {"tokens": 0, "snapshots": 0, "retries": 0, "slowed": 0}
        self._writer = writer
        self._meta = meta
        self._least = window
        self._window = window
        self._sent_parts: list[Part] = [dict(part) for part in parts]
        # Number of published parts before the last token, and a copy of the last one, if any.
        self._before: tuple[int, list[Part]] = 0, []
        self._size = _size(self.parts)
        self._pending: list[Any] = []
        self._waiting = 0
        self._held = ""
        self._index = base or 0
        self._opened = False
        self._snapshot = base is not None
        self._since = 0
        self._snapped = 0
        self._last_token = 0
        self._flight: Publish | None = None
        self._begun = 0
        self._trip = 0
        self._fails = 0
        self._failing: int | None = None
        self._again: int | None = None
        # Whether the end leaves the answer out, because no frame can carry it.
        self._bare = False
        self._end: tuple[EndKind, dict[str, Any]] | None = None
        self._self: str | None = None

    # ---------------------------------------------------------------- the program's side

    def open(self, at: int) -> list[WriterEffect]:
        """Publish the start of the stream."""
        self._snapped = at
        self._last_token = at - self._window
        return self._pump(at)

    def write(self, piece: str | Mapping[str, Any], at: int) -> list[WriterEffect]:
        """Add a piece; not after `finish`."""
        if not is_piece(piece):
            return self._refuse("invalid_payload", at)
        if isinstance(piece, str) or "type" not in piece:
            text = piece if isinstance(piece, str) else str(piece["text"])
            whole, self._held = split_pair(self._held + text)
            # U+FFFD that the program did not write replaces half of a pair.
            if whole.count("\ufffd") != text.count("\ufffd"):
                return self._refuse("invalid_payload", at)
            if not whole:
                return []
            piece = whole if isinstance(piece, str) else {"text": whole}
            size = _size(whole) - 2
        elif self._held:
            return self._refuse("invalid_payload", at)
        else:
            try:
                size = check_data(piece, sys.maxsize)
            except InvalidPayload:
                return self._refuse("invalid_payload", at)
        if self._size + size > LARGEST:
            return self._refuse("payload_too_large", at)
        self._size += size
        self._waiting += size
        self.full = self._waiting >= UNSENT
        grow(self.parts, piece)
        add_piece(self._pending, piece)
        return self._pump(at)

    def finish(self, kind: EndKind, fields: Mapping[str, Any], at: int) -> list[WriterEffect]:
        """End the stream, once."""
        if kind == "complete" and self._held:
            return self._refuse("invalid_payload", at)
        self._end = (kind, dict(fields))
        return self._pump(at)

    # ---------------------------------------------------------------- the other side

    def sent(self, at: int) -> list[WriterEffect]:
        """The frame was published."""
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        effects: list[WriterEffect] = []
        self._trip = at - self._begun
        self._fails, self._failing, self._again = 0, None, None
        self._window = max(self._least, self._window - (self._window >> 4))
        if self._trip > SLOW:
            self.stats["slowed"] += 1
            if self.stats["slowed"] == 1:
                effects.append({"kind": "slowed", "ms": self._trip})
        if flight["id"].endswith(":end"):
            self._stop()
        return effects + self._pump(at)

    def failed(
        self, code: str, retryable: bool, at: int, wait: int | None = None
    ) -> list[WriterEffect]:
        """The frame was not published, or its result is unknown: send it again if that may help."""
        if self.ended or self._flight is None:
            return []
        if self._failing is None:
            self._failing = self._begun
        if code in _UNSENDABLE and not self._bare:
            return self._take_back(self._flight, code, at)
        if not retryable or at - self._failing >= PATIENCE:
            return self._fail(code)
        if code == "rate_limited":
            self._window = min(WIDEST, self._window * 5 >> 1)
        self._snapshot = True
        self._again = at + max(wait or 0, min(2_000, 100 << min(self._fails, 5)))
        self._fails += 1
        return self._pump(at)

    def receive(self, type: str, data: Any, sender: str) -> list[WriterEffect]:
        """Process a message of the topic: wishes of readers, and frames of another writer."""
        if self.ended or not is_object(data) or data.get("stream") != self.stream:
            return []
        epoch = _number(data.get("epoch"))
        if type in WISHES:
            # A reader that has not seen a takeover yet sends the previous epoch.
            if data.get("epoch") is not None and not epoch <= self.epoch:
                return []
            if type == "stream.steer":
                return [{"kind": "steered", "data": data.get("data"), "by": sender}]
            reason = data.get("reason")
            cancel_reason = reason if isinstance(reason, str) else ""
            return [{"kind": "cancelled", "reason": cancel_reason, "by": sender}]
        other = data.get("writer")
        if other == self._writer:
            self._self = sender
        elif isinstance(other, str) and sender == self._self and epoch > self.epoch:
            return self._fail("conflict")
        return []

    def inherit(self, messages: Sequence[Incoming]) -> list[WriterEffect]:
        """Process the history of the topic: cancels that failed writers did not act on."""
        cancels: list[WriterEffect] = []
        for message in messages:
            type, data = message["type"], message["data"]
            if type == "stream.cancel":
                cancels += self.receive(type, data, message["sender"])
            elif type == "stream.start" and is_object(data) and data.get("stream") == self.stream:
                # A cancel from before an attempt was not meant for that attempt.
                cancels.clear()
        return cancels

    def tick(self, at: int) -> list[WriterEffect]:
        """Run what is due; call it at the time `due`."""
        return self._pump(at)

    # ---------------------------------------------------------------- inside

    def _refuse(
        self, code: Literal["invalid_payload", "payload_too_large"], at: int
    ) -> list[WriterEffect]:
        return [{"kind": "refused", "code": code}, *self.finish("abort", {"reason": code}, at)]

    def _take_back(self, flight: Publish, code: str, at: int) -> list[WriterEffect]:
        """Abort without what no frame can carry, so that readers do not wait for an end.

        The text before it stays, unless it is too large, too.
        """
        if flight["type"] == "token":
            self._index -= 1
            count, last = self._before
            self._sent_parts[max(0, count - 1) :] = last
            if flight["data"]["content"]:
                grow(self._sent_parts, flight["data"]["content"])
        self._bare = flight["type"] == "stream.abort"
        self._flight = self._failing = None
        self._pending = []
        self._end = ("abort", {"reason": code})
        return [{"kind": "failed", "code": code}, *self._pump(at)]

    def _fail(self, code: str) -> list[WriterEffect]:
        self._stop()
        return [{"kind": "failed", "code": code}]

    def _stop(self) -> None:
        self.ended = True
        self.due = None

    def _pump(self, at: int) -> list[WriterEffect]:
        """Publish what is due now; returns the time of the next check."""
        if self.ended:
            return []
        self.due = self._again
        if self._flight is not None:
            if self._again is None or at < self._again:
                return []
            self._again = self.due = None
            self.stats["retries"] += 1
            self._begun = at
            return [self._flight]
        pause = max(self._window, self._trip)
        interval = max(INTERVAL, min(SELDOM, INTERVAL * pause // WINDOW))
        interval *= 1 + self._size // UNSENT
        snapshot_at = self._snapped + interval
        due = self._snapshot or self._since >= EVERY or at >= snapshot_at
        if self._opened and due and not self._end:
            return self._say_snapshot(at)
        if not self._opened and not self._snapshot:
            self._opened = True
            start = {"meta": self._meta} if self._meta is not None else {}
            return self._publish_frame("stream.start", "start", TTL, start, at)
        if not self._opened:
            self._opened = True
            return self._say_snapshot(at, "start")
        token_at = self._last_token + pause
        if self._pending and (at >= token_at or self._end):
            return self._say_token(at)
        if self._end:
            kind, fields = self._end
            type = "message.complete" if kind == "complete" else "stream.abort"
            body = {} if self._bare else body_of(self._sent_parts)
            data = {"count": self._index, **body, **fields}
            return self._publish_frame(type, "end", TTL_END, data, at)
        self.due = min(token_at, snapshot_at) if self._pending else snapshot_at
        return []

    def _say_token(self, at: int) -> list[WriterEffect]:
        pieces, self._pending, self._waiting, self.full = self._pending, [], 0, False
        # Only the last part grows, and new ones follow it.
        self._before = len(self._sent_parts), [dict(part) for part in self._sent_parts[-1:]]
        for piece in pieces:
            grow(self._sent_parts, piece)
        content, rest = (pieces[0], pieces[1:]) if isinstance(pieces[0], str) else ("", pieces)
        data = {"index": self._index, "content": content, **({"pieces": rest} if rest else {})}
        effects = self._publish_frame("token", str(self._index), TTL, data, at)
        self._index += 1
        self._since += 1
        self._last_token = at
        self.stats["tokens"] += 1
        return effects

    def _say_snapshot(self, at: int, name: str = "") -> list[WriterEffect]:
        self._snapshot = False
        self._since = 0
        self._snapped = at
        self.stats["snapshots"] += 1
        data = {"upto": self._index, **body_of(self._sent_parts)}
        if self._meta is not None:
            data["meta"] = self._meta
        name = name or f"s{self.stats['snapshots']}"
        return self._publish_frame("token.snapshot", name, TTL, data, at)

    def _publish_frame(
        self, type: str, name: str, ttl: int, data: Mapping[str, Any], at: int
    ) -> list[WriterEffect]:
        frame: Publish = {
            "kind": "publish",
            "type": type,
            "id": f"{self.stream}:{self.epoch}:{name}",
            "ttl": ttl,
            "data": {
                "stream": self.stream,
                "epoch": self.epoch,
                "writer": self._writer,
                **data,
            },
        }
        self._flight = frame
        self._begun = at
        return [frame]


def _number(value: object) -> float:
    """Return a number of a frame, or NaN, which compares as false with each number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _size(value: object) -> int:
    return len(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    )


__all__ = [
    "LARGEST",
    "UNSENT",
    "WINDOW",
    "WISHES",
    "EndKind",
    "Publish",
    "WriterEffect",
    "Writing",
]
