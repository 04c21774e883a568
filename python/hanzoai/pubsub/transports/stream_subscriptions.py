"""The subscriptions of an event stream: builds one request, and answers each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.wire import (
    Denial,
    ErrorFrame,
    MessageFrame,
    StreamSubscription,
    SubscribedFrame,
    SubscribeRequest,
)
from hanzoai.pubsub.topics import matches
from hanzoai.pubsub.transports.event_stream import StreamRequest
from hanzoai.pubsub.wire.codec import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.generated.wire import Message, ServerFrame, SubscribeFrame
    from hanzoai.pubsub.wire.codec import Decoded

_TOPICS_MAX: Final = 10_000
"""Topics with a stored position; other topics are replayed from the stream's beginning."""


class _Wanted:
    """One `subscribe` frame.

    Attributes:
        frame: Frame of the session.
        answered: The session has its `subscribed`; replays of later streams become messages.
        began: Server time of that answer.
    """

    __slots__ = ("answered", "began", "frame")

    def __init__(self, frame: SubscribeFrame) -> None:
        self.frame = frame
        self.answered = False
        self.began: int | None = None

    def takes(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.frame.topics)


class StreamSubscriptions:
    """The set that the next stream carries.

    Args:
        wall_ms: Unix milliseconds.
        overlap_ms: Time before the newest message that a peer without `seq` replays.

    Attributes:
        plain: The peer implements only HIP-56: one `GET` with all topics and the lowest
            `since`, one `subscribed` for all of them, no `ref`.
        generation: Number of the set.
    """

    def __init__(self, wall_ms: Callable[[], int], *, overlap_ms: int) -> None:
        self._wall_ms = wall_ms
        self._overlap_ms = overlap_ms
        self._wanted: list[_Wanted] = []
        self._seqs: dict[str, int] = {}
        self._newest = 0
        self._opened_at = 0
        self.plain: bool = False
        self.generation: int = 0

    @property
    def empty(self) -> bool:
        """Whether there are no subscriptions."""
        return not self._wanted

    def replace(self, frames: Sequence[SubscribeFrame]) -> list[ServerFrame]:
        """Replace the present set.

        Returns:
            Answers to the unanswered requests of the old set: without a `ref`, the session
            matches answers to requests by order.
        """
        overtaken: list[ServerFrame] = [
            SubscribedFrame(topics=one.frame.topics)
            for one in self._wanted
            if not one.answered and one.frame.ref is None
        ]
        self._wanted = [_Wanted(frame) for frame in frames]
        self.generation += 1
        return overtaken

    def remove(self, patterns: Sequence[str]) -> None:
        """Remove the subscriptions to these patterns."""
        gone = set(patterns)
        self._wanted = [one for one in self._wanted if not gone.issuperset(one.frame.topics)]

    # ------------------------------------------------------------ the request

    def request(self, client_id: str | None) -> StreamRequest:
        """Return the request for the present set, each subscription from its position.

        Args:
            client_id: Presence id of the stream that this one replaces.
        """
        self._opened_at = self._opened_at or self._wall_ms()
        return self._get() if self.plain else self._post(client_id)

    def _post(self, client_id: str | None) -> StreamRequest:
        body = SubscribeRequest(
            subscriptions=[self._subscription(one) for one in self._wanted],
            presence=any(one.frame.presence for one in self._wanted),
            client_id=client_id,
        )
        return StreamRequest("POST", body=to_json(body))

    def _subscription(self, one: _Wanted) -> StreamSubscription:
        frame = one.frame
        if not one.answered:
            return StreamSubscription(
                topics=frame.topics,
                since=frame.since,
                after=frame.after,
                history=frame.history,
                ref=frame.ref,
            )
        seen = {topic: seq for topic, seq in self._seqs.items() if one.takes(topic)}
        after = {**(frame.after or {}), **seen}
        since = one.began if frame.since is None else frame.since
        return StreamSubscription(
            topics=frame.topics,
            # A topic without a message so far began after the first answer.
            since=self._opened_at - self._overlap_ms if since is None else since,
            after=after or None,
            ref=frame.ref,
        )

    def _get(self) -> StreamRequest:
        topics = dict.fromkeys(topic for one in self._wanted for topic in one.frame.topics)
        starts = [
            self._resume_since if one.answered else one.frame.since
            for one in self._wanted
            if one.answered or one.frame.since is not None
        ]
        since = min((start for start in starts if start is not None), default=None)
        params = [("topics", ",".join(topics))]
        if since is not None:
            params.append(("since", str(since)))
        return StreamRequest("GET", tuple(params))

    @property
    def _resume_since(self) -> int:
        return max(0, (self._newest or self._opened_at) - self._overlap_ms)

    # ------------------------------------------------------------ the answers

    def translate(self, frame: Decoded, generation: int) -> Iterable[Decoded]:
        """Convert a frame of a stream to frames for the session.

        Args:
            frame: The received frame.
            generation: The set of the stream.
        """
        if isinstance(frame, MessageFrame):
            self._note(frame.message)
            return (frame,)
        if not isinstance(frame, SubscribedFrame):
            return (frame,)
        for message in frame.history or ():
            self._note(message)
        self._note_positions(frame.positions or {})
        if self.plain and frame.ref is None:
            return self._share(frame) if generation == self.generation else ()
        found = next((one for one in self._wanted if one.frame.ref == frame.ref), None)
        if found is None:
            return (frame,)
        if found.answered:
            return _as_messages(frame)
        found.answered = not frame.more
        found.began = frame.timestamp if found.began is None else found.began
        return (frame,)

    def _share(self, frame: SubscribedFrame) -> list[ServerFrame]:
        """Split the one answer of a plain peer into one answer per subscription."""
        frames: list[ServerFrame] = []
        granted = set(frame.topics)
        history = frame.history or []
        if any(one.answered for one in self._wanted):
            frames += _as_messages(frame)
        for one in self._wanted:
            if one.answered:
                continue
            one.answered = True
            since = one.frame.since
            frames.append(
                SubscribedFrame(
                    topics=[topic for topic in one.frame.topics if not granted or topic in granted],
                    history=[
                        message
                        for message in history
                        if since is not None
                        and (message.timestamp > since or message.timestamp == 0)
                        and one.takes(message.topic)
                    ],
                    ref=one.frame.ref,
                )
            )
        return frames

    def denied(self, error: PubSubError) -> list[ServerFrame]:
        """Return the answers for a stream that was rejected for its topics, and empty the set."""
        frames: list[ServerFrame] = []
        # The answer names one topic, but concerns all of them.
        text = error.message.replace(f" (topic {error.topic})", "")
        for one in self._wanted:
            frame = one.frame
            if one.answered or frame.ref is None:
                frames.append(
                    ErrorFrame(
                        code=error.code,
                        message=text,
                        remedy=error.remedy,
                        topic=frame.topics[0],
                    )
                )
            else:
                denials = [
                    Denial(topic=topic, code=error.code, message=text) for topic in frame.topics
                ]
                frames.append(SubscribedFrame(topics=[], denied=denials, ref=frame.ref))
        self._wanted = []
        return frames

    def _note(self, message: Message) -> None:
        self._newest = max(self._newest, message.timestamp)
        if message.seq is not None:
            self._note_positions({message.topic: message.seq})

    def _note_positions(self, positions: Mapping[str, int]) -> None:
        seqs = self._seqs
        for topic, seq in positions.items():
            if seq > seqs.get(topic, -1):
                seqs[topic] = seq
        while len(seqs) > _TOPICS_MAX:
            del seqs[next(iter(seqs))]


def _as_messages(frame: SubscribedFrame) -> list[ServerFrame]:
    frames: list[ServerFrame] = [MessageFrame(message=message) for message in frame.history or ()]
    frames += [
        ErrorFrame(code=one.code, message=one.message or "", topic=one.topic)
        for one in frame.denied or ()
    ]
    return frames
