"""Subscribe and unsubscribe: register, replay, deliver. H-042, H-043, H-046, H-084, H-103."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

import orjson

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from pubsub_server.backplane import Replay
from pubsub_server.errors import ServiceError
from pubsub_server.hub.core import wants_presence
from pubsub_server.shared.connection import ANSWERING, REPLAYING, with_name, without_name
from pubsub_server.shared.denials import denial
from pubsub_server.shared.encoder import Attends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.hub.attendance import Attendance
    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import HookEvent, Identity
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.requests import SubscribeRequest, UnsubscribeRequest
    from pubsub_server.shared.topic_index import Survey

FRAME_BYTES: Final = 1_048_576
"""Maximum bytes of history in one `subscribed` frame; the rest follows in more frames (`more`)."""


SURVEYED_TOPICS: Final = 10_000
"""Maximum topics of a survey, whose messages and positions are in one answer."""


@dataclass(frozen=True, slots=True)
class Groundwork:
    """Searches before a subscription to patterns; a context manager, so that they end.

    Attributes:
        identity: The identity that may read the found topics.
        topics: The search for topics with a log.
        members: The search for topics with members.
    """

    identity: Identity
    topics: Survey | None
    members: Survey | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()

    def end(self) -> None:
        """End the searches."""
        for survey in (self.topics, self.members):
            if survey is not None:
                survey.end()

    async def run(self, turn: Callable[[float], Awaitable[None]]) -> None:
        """See `topic_index.Survey.run`."""
        for survey in (self.topics, self.members):
            if survey is not None:
                await survey.run(turn)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A subscribe that is performed and not answered yet.

    Attributes:
        identity: The identity that may read what is granted.
        request: As the client sent it.
        granted: Topics and patterns that it subscribes to.
        denied: Errors of the others.
        loud: Whether it receives presence.
        members: Topics of its patterns with a member, if they have been searched.
        timestamp: Unix ms of this node; see `Replay.begun`.
    """

    identity: Identity
    request: SubscribeRequest
    granted: Sequence[str]
    denied: Sequence[ServiceError]
    loud: bool
    members: Sequence[str] | None
    timestamp: int


class Subscriptions:
    """Performs subscribe and unsubscribe.

    Args:
        core: The parts of the hub.
        attendance: Who is present.
    """

    def __init__(self, core: Core, attendance: Attendance) -> None:
        self._core = core
        self._attendance = attendance

    def groundwork(self, connection: Connection, request: SubscribeRequest) -> Groundwork | None:
        """The searches to run first, if the patterns can match a large number of topics."""
        core = self._core
        identity = connection.identity
        patterns = [each for each in request.topics if is_wildcard(each)]
        if identity is None or not patterns:
            return None

        def allowed(topic: str) -> bool:
            return core.policy.may_subscribe(identity, topic)

        topics = core.backplane.logs.survey(patterns, allowed)
        loud = wants_presence(connection, request)
        alone = loud and core.roster is None
        members = core.presence.survey(patterns, allowed) if alone else None
        if topics is None and members is None:
            return None
        return Groundwork(identity, topics, members)

    def subscribe(
        self,
        connection: Connection,
        request: SubscribeRequest,
        groundwork: Groundwork | None = None,
    ) -> Awaitable[None] | None:
        """Register, then replay; answers through the connection.

        Args:
            connection: The subscriber.
            request: Its request.
            groundwork: The completed result of `groundwork`.

        Returns:
            An awaitable if the backplane is slow; the connection makes no other request until it
            ends.
        """
        core = self._core
        identity = connection.identity
        if identity is None:
            core.refuse(connection, not_yet(), request.ref)
            return None
        if core.delivery.discards(connection):
            # Its client has closed while the request waited for its turn.
            return None
        core.delivery.close_run()
        fresh = [each for each in request.topics if each not in connection.patterns]
        granted: list[str] = []
        denied = list(request.invalid)
        loud = wants_presence(connection, request)
        for pattern in request.topics:
            error = self._register(connection, identity, pattern, loud)
            if error is None:
                granted.append(pattern)
            else:
                denied.append(error)
                core.count(error)
        named = [each for each in granted if not is_wildcard(each)]
        patterns = [each for each in granted if is_wildcard(each)]
        members: list[str] | None = None
        if groundwork is not None:
            if groundwork.members is not None:
                members = self._found(connection, patterns, groundwork, groundwork.members)
            if groundwork.topics is not None:
                found = self._found(connection, patterns, groundwork, groundwork.topics)
                named += found[:SURVEYED_TOPICS]
                patterns = []
        # One less than now, so that messages published within this millisecond are newer.
        now = core.wall() - 1
        accepted = _Accepted(identity, request, granted, denied, loud, members, now)
        replay = core.backplane.replay(
            named,
            patterns,
            since=request.since,
            after=request.after or {},
            newest=request.history,
            allowed=lambda topic: core.may_read(connection, topic),
        )
        if isinstance(replay, Replay):
            self._answer(connection, accepted, replay)
            return None
        core.delivery.await_replay(connection)
        self._attendance.expect(connection)
        fresh = [each for each in fresh if each in connection.patterns]
        core.floors.begin(connection, set(fresh))
        return self._or_none(connection, fresh, self._answer_later(connection, accepted, replay))

    def unsubscribe(self, connection: Connection, request: UnsubscribeRequest) -> None:
        """End the subscriptions with exactly these patterns."""
        core = self._core
        if connection.identity is None:
            core.refuse(connection, not_yet(), request.ref)
            return
        ended = [each for each in request.topics if each in connection.patterns]
        core.delivery.close_run()
        for pattern in ended:
            self.drop(connection, pattern)
        if request.ref is not None:
            core.send(connection, {"type": "unsubscribed", "topics": ended, "ref": request.ref})

    def drop(self, connection: Connection, pattern: str) -> None:
        """End one subscription; the caller has closed the run of `delivery`."""
        self._discard(connection, pattern)
        if not is_wildcard(pattern):
            self._attendance.quit(connection, pattern)

    # ------------------------------------------------------------ inside

    def _discard(self, connection: Connection, pattern: str) -> None:
        core = self._core
        core.router.discard(connection, pattern)
        connection.patterns = without_name(connection.patterns, pattern)
        core.stats.subscriptions -= 1
        if connection.silent is not None:
            connection.silent.discard(pattern)
            if not connection.silent:
                connection.silent = None
        identity = connection.identity
        if identity is not None:
            core.note("unsubscribe", identity, pattern, connection)
            self._hook("unsubscribe", identity, pattern, connection)

    def _register(
        self, connection: Connection, identity: Identity, pattern: str, loud: bool
    ) -> ServiceError | None:
        core = self._core
        held = pattern in connection.patterns
        if not core.policy.may_subscribe_pattern(identity, pattern):
            core.note("subscribe", identity, pattern, connection, refused="forbidden")
            return denial(core.settings, "the access rules do not allow this subscription", pattern)
        if not held and len(connection.patterns) >= core.settings.max_subscriptions:
            return ServiceError(
                "subscription_limit",
                f"this connection has {core.settings.max_subscriptions:,} subscriptions,"
                " and no more are allowed",
                topic=pattern,
            )
        changed = self._set_loud(connection, pattern, loud)
        if held:
            if changed:
                core.router.presence_changed(pattern)
            return None
        connection.patterns = with_name(connection.patterns, pattern)
        core.router.add(connection, pattern)
        core.stats.subscriptions += 1
        core.note("subscribe", identity, pattern, connection)
        self._hook("subscribe", identity, pattern, connection)
        return None

    def _set_loud(self, connection: Connection, pattern: str, loud: bool) -> bool:
        """Whether this changes anything."""
        silent = connection.silent
        if loud == (silent is None or pattern not in silent):
            return False
        if not loud:
            if silent is None:
                connection.silent = {pattern}
            else:
                silent.add(pattern)
        elif silent is not None:
            silent.discard(pattern)
            if not silent:
                connection.silent = None
        return True

    async def _or_none(
        self, connection: Connection, fresh: Sequence[str], rest: Awaitable[None]
    ) -> None:
        """Remove the new subscriptions if their replay fails."""
        core = self._core
        try:
            await rest
        except BaseException:
            core.floors.fail(connection)
            if connection.encoder.resubscribes:
                core.delivery.close_run()
                for pattern in fresh:
                    if pattern in connection.patterns:
                        self._discard(connection, pattern)
                        self._attendance.undo(connection, pattern)
                core.delivery.release(connection, REPLAYING)
            raise

    async def _answer_later(
        self, connection: Connection, accepted: _Accepted, replay: Awaitable[Replay]
    ) -> None:
        try:
            found = await replay
            accepted, found = self._permitted(connection, accepted, found)
            self._join(connection, found, _reset(accepted, found))
            joined = self._joined(connection, accepted)
            shown = accepted.granted if accepted.loud else ()
            ahead = await self._attendance.greet(connection, joined, shown)
            if not connection.closed:
                accepted, found = self._permitted(connection, accepted, found)
                self._answer(connection, accepted, found, ahead)
        finally:
            self._attendance.greeted(connection)

    def _permitted(
        self, connection: Connection, accepted: _Accepted, replay: Replay
    ) -> tuple[_Accepted, Replay]:
        """The answer without what the connection may no longer read since a reauthentication."""
        identity = connection.identity
        if identity is None or identity is accepted.identity or connection.closed:
            return accepted, replay

        def readable(topics: Iterable[str]) -> list[str]:
            return [each for each in topics if connection in self._core.router.route(each)]

        granted = [each for each in accepted.granted if each in connection.patterns]
        ended = [each for each in accepted.granted if each not in connection.patterns]
        kept = set(readable({entry.topic for entry in replay.entries}))
        return (
            replace(
                accepted,
                identity=identity,
                granted=granted,
                denied=[*accepted.denied, *map(_no_longer, ended)],
                members=None if accepted.members is None else readable(accepted.members),
            ),
            replace(
                replay,
                entries=[entry for entry in replay.entries if entry.topic in kept],
                positions={topic: replay.positions[topic] for topic in readable(replay.positions)},
                truncated=readable(replay.truncated),
                reset=readable(replay.reset),
            ),
        )

    def _found(
        self,
        connection: Connection,
        patterns: Sequence[str],
        groundwork: Groundwork,
        survey: Survey,
    ) -> list[str]:
        """The found topics of these patterns that the connection may still read."""
        topics = _of(patterns, survey)
        if connection.identity is groundwork.identity:
            return topics
        return [each for each in topics if self._core.may_read(connection, each)]

    def _join(self, connection: Connection, replay: Replay, reset: Iterable[str]) -> None:
        """Order live messages after the replay.

        A message of a lost log may still be on its way. After the answer has reported the loss, it
        would look like the beginning of the next numbering, and the next message like another loss.
        """
        core = self._core
        ended = {topic: replay.ends[topic] for topic in reset if topic in replay.ends}
        floors = {**replay.floors, **ended}
        for entry, data in core.floors.answer(connection, replay.positions, floors):
            if connection in core.router.route(entry.topic):
                core.stats.delivered += 1
                core.delivery.send(connection, data)

    def _joined(self, connection: Connection, accepted: _Accepted) -> list[str]:
        # A reader of an event stream is a member only on request; HIP-56 lets it watch.
        presence, asked = connection.encoder.presence, accepted.request.presence
        if presence is Attends.CHANGES or (presence is Attends.SNAPSHOTS and asked):
            return [each for each in accepted.granted if not is_wildcard(each)]
        return []

    def _answer(
        self,
        connection: Connection,
        accepted: _Accepted,
        replay: Replay,
        ahead: Iterable[bytes] | None = None,
    ) -> None:
        core = self._core
        core.stats.replayed += len(replay.entries)
        parts = _split(replay.entries)
        frames = self._frames(connection.encoder, accepted, replay, parts)
        if accepted.request.followed:
            core.delivery.stall(connection, ANSWERING)
        if ahead is not None:
            core.delivery.replay(connection, chain(frames, ahead))
        elif connection.stalled or len(parts) > 1:
            core.delivery.replay(connection, frames)
        elif answer := next(frames):
            core.delivery.send(connection, answer)
        if not accepted.request.followed:
            core.delivery.release(connection, ANSWERING)
        if accepted.request.ref is None:
            for error in accepted.denied:
                core.refuse(connection, error)
        if ahead is not None:
            return
        for topic in self._joined(connection, accepted):
            self._attendance.enter(connection, topic)
        if accepted.loud:
            self._attendance.show(connection, accepted.granted, accepted.members)

    def _frames(
        self,
        encoder: Encoder,
        accepted: _Accepted,
        replay: Replay,
        parts: Sequence[Sequence[Entry]],
    ) -> Iterator[bytes]:
        """The answer in frames of about `FRAME_BYTES`.

        The first frame reports what is missing, before the messages that follow the gap; the last
        frame contains the positions, after the messages up to them.
        """
        request = accepted.request
        for index, part in enumerate(parts):
            frame: dict[str, object] = {
                "type": "subscribed",
                "topics": accepted.granted,
                "history": [orjson.Fragment(entry.body) for entry in part],
                "timestamp": accepted.timestamp if replay.begun is None else replay.begun,
            }
            if index == 0:
                if replay.truncated:
                    frame["truncated"] = replay.truncated
                reset = _reset(accepted, replay)
                if reset:
                    frame["reset"] = reset
                if accepted.denied:
                    frame["denied"] = [
                        {"topic": e.topic or "", "code": e.code, "message": e.message}
                        for e in accepted.denied
                    ]
            if index + 1 < len(parts):
                frame["more"] = True
            else:
                frame["positions"] = replay.positions
            if request.followed:
                frame["followed"] = True
            if request.ref is not None:
                frame["ref"] = request.ref
            yield encoder.frame(frame)

    def _hook(
        self, event: HookEvent, identity: Identity, pattern: str, connection: Connection
    ) -> None:
        hooks = self._core.webhooks
        if hooks is not None and hooks.wants(event, pattern):
            body = {
                "topic": pattern,
                "client_id": connection.client_id,
                "user_id": identity.user_id,
                "timestamp": self._core.wall(),
            }
            hooks.notify(event, pattern, orjson.dumps(body))


def _of(patterns: Sequence[str], survey: Survey) -> list[str]:
    """The found topics of these patterns; a pattern of the request may have been denied since."""
    if survey.patterns <= set(patterns):
        return list(survey.found)
    trie: TopicTrie[None] = TopicTrie()
    for pattern in patterns:
        trie.insert(pattern, None)
    return [topic for topic in survey.found if trie.match(topic)]


def _split(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    parts: list[Sequence[Entry]] = []
    start = size = 0
    for index, entry in enumerate(entries):
        if index > start and size + len(entry.body) > FRAME_BYTES:
            parts.append(entries[start:index])
            start, size = index, 0
        size += len(entry.body)
    parts.append(entries[start:])
    return parts


def _reset(accepted: _Accepted, replay: Replay) -> Sequence[str]:
    """Topics whose continuity is broken, and patterns for which all matching topics are broken.

    An event id contains the position of one topic. For the other topics of a resumed stream, the
    store may have lost any message since the time in the id; also for that topic, if its log no
    longer exists. Another node may have had messages of any topic that never arrived here.
    """
    request, granted = accepted.request, accepted.granted
    if request.moved:
        return list(dict.fromkeys((*replay.reset, *granted)))
    if request.resumed is None or replay.unbroken <= request.resumed:
        return replay.reset
    counted = (request.after or {}).keys() & replay.positions.keys()
    lost = [each for each in granted if not is_wildcard(each) and each not in counted]
    return list(dict.fromkeys((*replay.reset, *lost)))


def _no_longer(topic: str) -> ServiceError:
    detail = "the access rules no longer allow this subscription"
    return ServiceError("forbidden", detail, topic=topic)


def not_yet() -> ServiceError:
    """The error for an operation before authentication."""
    return ServiceError("unauthenticated", "send `auth` with a token first")
