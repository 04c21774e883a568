"""A server in virtual time: logs with bounded retention, `seq`, resets, denials, limits, tokens.

It also records data that a client never sees: every published message, and whether it was removed
from history.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthExpiringFrame,
    AuthFrame,
    AuthOkFrame,
    Denial,
    ErrorFrame,
    ErrorInfo,
    Limits,
    Message,
    MessageFrame,
    PingFrame,
    PongFrame,
    PresenceMember,
    PresenceSnapshotFrame,
    PublishedFrame,
    PublishFrame,
    PublishResult,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.topics import matches as compare
from tests.simulation.profile import FEATURES, OWN, SECRET
from tests.simulation.records import Connection, Log, Record, Start
from tests.simulation.rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.wire import ClientFrame, Publication
    from tests.simulation.profile import Profile
    from tests.simulation.world import World


matches = cache(compare)
"""An unbounded cache is fine here: there are few patterns and topics."""

GRACE = 5_000
"""Milliseconds after which a lost client is no longer a member."""


class Server:
    """The server side of the network."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world = world
        self.profile = profile
        self.published: dict[str, list[Record]] = {}
        self.logs: dict[str, Log] = {}
        self.ids: dict[str, Record] = {}
        self.connections: list[Connection] = []
        self.tokens: dict[str, int] = {}
        self.starts: dict[tuple[Connection, str], Start] = {}
        self.rooms = Rooms(world, self._tell_presence)
        self._own: dict[str, Connection] = {}  # by topic, the connection of the member
        self.on_reset: Callable[[str, int], None] = lambda topic, number: None
        self._made = 0
        self._generations = 0

    # ---------------------------------------------------------------- messages

    def publish(self, topic: str, id: str | None = None, ttl: int | None = None) -> Record | None:
        """Append a message to its log and deliver it; return None if it is not retained."""
        world, profile = self.world, self.profile
        self._made += 1
        at = world.now
        if profile.skew:
            at += world.random.between(-profile.skew, profile.skew)
        log = self.logs.get(topic)
        if log is None:
            log = self._begin(topic)
        kept = ttl != 0
        message = Message(
            id=id or f"w{self._made}",
            topic=topic,
            type="text",
            data=self._made,
            timestamp=at,
            ttl=ttl,
            seq=log.next if kept and not profile.plain else None,
        )
        record = None
        first = kept and log.next == log.base
        if kept:
            everything = self.published.setdefault(topic, [])
            until = None if ttl is None else world.now + ttl * 1000
            record = Record(message, len(everything), log.number, until)
            everything.append(record)
            log.next += 1
            log.entries.append(record)
            if len(log.entries) > profile.retained:
                log.entries.pop(0).gone = True
        for connection in self.connections:
            if any(matches(pattern, topic) for pattern in connection.patterns):
                # A pattern subscription has no position of a topic before its first message.
                blind = profile.plain or any(
                    "*" in pattern and matches(pattern, topic) for pattern in connection.patterns
                )
                if (first and blind) or not kept or not world.fault(profile.loses_live):
                    connection.send(MessageFrame(message=message))
                if kept and world.fault(profile.doubles):
                    connection.send(MessageFrame(message=message))
        return record

    def _begin(self, topic: str) -> Log:
        self._generations += 1
        log = self.logs[topic] = Log(self.world.now * 1000, self._generations)
        self.published.setdefault(topic, [])
        return log

    def reset(self, topic: str) -> None:
        """Lose the log of a topic."""
        if topic in self.logs:
            self.on_reset(topic, self.logs[topic].number)
            for record in self.logs.pop(topic).entries:
                record.gone = True

    # ---------------------------------------------------------------- connections

    def opened(self, connection: Connection) -> None:
        """Handle an opened transport."""
        self.connections.append(connection)

    def closed(self, connection: Connection) -> None:
        """Handle a lost transport."""
        if connection.open:
            for topic in [t for t, owner in self._own.items() if owner is connection]:
                self.world.after(GRACE, partial(self._quit, connection, topic))
        connection.open = False
        if connection in self.connections:
            self.connections.remove(connection)

    def receive(self, connection: Connection, frame: ClientFrame) -> None:
        """Handle one frame."""
        if isinstance(frame, AuthFrame):
            self._authenticate(connection, frame)
        elif not connection.authenticated:
            connection.close(4401, "no auth", None)
        elif isinstance(frame, SubscribeFrame):
            self._subscribe(connection, frame)
        elif isinstance(frame, UnsubscribeFrame):
            for pattern in frame.topics:
                connection.patterns.pop(pattern, None)
                connection.watched.pop(pattern, None)
                self._quit(connection, pattern)
        elif isinstance(frame, PublishFrame):
            self._publish(connection, frame)
        elif isinstance(frame, PingFrame):
            connection.send(PongFrame())
        else:
            topics = self.rooms.occupied() if frame.topic is None else [frame.topic]
            for topic in topics:
                self.rooms.update(topic, OWN, frame.data)
            if frame.ref is not None:
                connection.send(PublishedFrame(ref=frame.ref))

    # ---------------------------------------------------------------- presence

    def _quit(self, connection: Connection, topic: str) -> None:
        if self._own.get(topic) is connection:
            del self._own[topic]
            self.rooms.leave(topic, OWN)

    def _tell_presence(self, change: str, topic: str, member: PresenceMember) -> None:
        self._made += 1
        message = Message(
            id=f"m{self._made}",
            topic=topic,
            type=f"presence.{change}",
            data=member.wire(),
            timestamp=self.world.now,
        )
        for connection in self.connections:
            watched = connection.patterns if self.profile.plain else connection.watched
            if any(matches(pattern, topic) for pattern in watched):
                if connection.stream:
                    self._show(connection, topic)
                else:
                    connection.send(MessageFrame(message=message))

    def _show(self, connection: Connection, topic: str) -> None:
        connection.send(PresenceSnapshotFrame(topic=topic, members=self.rooms.members(topic)))

    def _show_all(self, connection: Connection, granted: list[str]) -> None:
        """Send snapshots of the named topics, and of the topics that patterns match."""
        named = [pattern for pattern in granted if "*" not in pattern]
        found = [t for t in self.rooms.occupied() if any(matches(p, t) for p in granted)]
        for topic in dict.fromkeys([*named, *found]):
            self._show(connection, topic)

    # ---------------------------------------------------------------- tokens

    def _authenticate(self, connection: Connection, frame: AuthFrame) -> None:
        world, profile = self.world, self.profile
        ends = self.tokens.get(frame.token, 0)
        if ends <= world.now:
            connection.send(AuthErrorFrame(code="token_expired", message="too old"))
            world.after(1, lambda: connection.close(4401, "expired", None))
            return
        connection.authenticated = True
        connection.expiry += 1
        number = connection.expiry
        if profile.warns and ends - world.now > 6_000:
            world.after(ends - world.now - 6_000, lambda: self._warn(connection, number))
        world.after(ends - world.now, lambda: self._expire(connection, number))
        if profile.plain:
            connection.send(AuthOkFrame(client_id="c"))
            return
        features = [
            name
            for name in FEATURES
            if (name != "idempotency" or profile.idempotent)
            and (name != "batch" or profile.batch)
            and (name != "ack" or profile.acks)
        ]
        connection.send(
            AuthOkFrame(
                client_id="c",
                version=1,
                features=features,
                server_time=world.now,
                expires_at=None if profile.warns else ends,
                limits=Limits(publish_rate=profile.rate) if profile.rate else None,
            )
        )

    def _warn(self, connection: Connection, number: int) -> None:
        if connection.open and connection.expiry == number:
            connection.send(AuthExpiringFrame(expires_in=6_000))

    def _expire(self, connection: Connection, number: int) -> None:
        if connection.open and connection.expiry == number:
            connection.close(4401, "expired", None)

    # ---------------------------------------------------------------- subscribe

    def _subscribe(self, connection: Connection, frame: SubscribeFrame) -> None:
        world, profile = self.world, self.profile
        if world.fault(profile.refuses_now):
            error = ErrorFrame(
                code="unavailable", message="later", ref=frame.ref, retry_after_ms=500
            )
            if not profile.plain:
                connection.send(error)
                return
        granted = [pattern for pattern in frame.topics if pattern != SECRET]
        denied = [Denial(topic=SECRET, code="forbidden")] if SECRET in frame.topics else None
        if profile.plain and denied:
            connection.send(ErrorFrame(code="forbidden", message="no", topic=SECRET))
            return
        if granted and not profile.plain and world.fault(profile.denies_now):
            denied = [*(denied or ()), Denial(topic=granted.pop(0), code="unavailable")]
        connection.patterns |= dict.fromkeys(granted)
        if frame.presence:
            connection.watched |= dict.fromkeys(granted)
        for topic in granted:
            if "*" not in topic and not profile.plain:
                self._own[topic] = connection
                self.rooms.enter(topic, OWN)
                if topic not in self.logs and topic not in (frame.after or {}):
                    self._begin(topic)
        topics = [t for t in self.published if any(matches(p, t) for p in granted)]
        counts = {t: len(self.published[t]) for t in topics}
        offered = [] if frame.history is None else self._replay(frame, granted, counts)[0]
        start = Start(counts, tuple(granted), world.now, offered)
        self.starts[connection, frame.ref or ",".join(frame.topics)] = start
        positions = {t: self.logs[t].next - 1 for t in topics if t in self.logs}
        timestamp = world.now
        stream = connection.stream
        late = world.fault(profile.later_answers)
        if late or connection.answers_at > world.now:
            read_late = world.random.chance(500)
            # Select the newest messages at the time of the subscription.
            late = read_late and frame.history is None
            early = None if late else self._replay(frame, granted, counts)
            wait = world.random.between(1, 400)
            if profile.plain:
                wait = max(wait, connection.answers_at - world.now)
                connection.answers_at = world.now + wait
            world.after(
                wait,
                lambda: self._answer(
                    connection,
                    frame,
                    granted,
                    denied,
                    positions,
                    timestamp,
                    early or self._replay(frame, granted, counts),
                    stream,
                ),
            )
            return
        replay = self._replay(frame, granted, counts)
        self._answer(connection, frame, granted, denied, positions, timestamp, replay, stream)

    def _replay(
        self, frame: SubscribeFrame, granted: list[str], counts: dict[str, int]
    ) -> tuple[list[Message], list[str], list[str]]:
        after = frame.after or {}
        history: list[Message] = []
        truncated: list[str] = []
        reset: list[str] = []
        for topic in sorted({*self.logs, *after}):
            if not any(matches(pattern, topic) for pattern in granted):
                continue
            log = self.logs.get(topic)
            if log is None:
                if self.profile.tells_reset_of_nothing:
                    reset.append(topic)
                continue
            for record in [r for r in log.entries if r.until and r.until <= self.world.now]:
                log.entries.remove(record)
                record.gone = True
            if topic in after:
                if after[topic] < log.base - 1:
                    reset.append(topic)
                mark = after[topic]
                if self._lost(topic, log, after=mark):
                    truncated.append(topic)
                found = [r.message for r in log.entries if (r.message.seq or 0) > mark]
            elif frame.since is not None:
                # Later messages belong to the subscription, whichever clock has stamped them; but
                # a plain peer can only use the timestamps.
                plain = self.profile.plain
                begun = len(self.published[topic]) if plain else counts.get(topic, 0)
                if self._lost(topic, log, since=frame.since, begun=begun):
                    truncated.append(topic)
                found = [
                    r.message
                    for r in log.entries
                    if r.message.timestamp > frame.since or r.index >= begun
                ]
            elif frame.history is not None:
                found = [r.message for r in log.entries]
            else:
                continue
            history += found if frame.history is None else found[-frame.history :]
        return history, truncated, reset

    def _lost(
        self, topic: str, log: Log, *, after: int = -1, since: int = -1, begun: int = 0
    ) -> bool:
        """Whether a requested message is older than everything in the log."""
        everything = self.published[topic]
        oldest = log.entries[0].index if log.entries else len(everything)
        for record in reversed(everything[:oldest]):
            if record.log != log.number:
                return False
            newer = record.message.timestamp > since or record.index >= begun
            if (record.message.seq or 0) > after and newer:
                return True
        return False

    def _answer(
        self,
        connection: Connection,
        frame: SubscribeFrame,
        granted: list[str],
        denied: list[Denial] | None,
        positions: dict[str, int],
        timestamp: int,
        replay: tuple[list[Message], list[str], list[str]],
        stream: int,
    ) -> None:
        if not connection.open or connection.stream != stream:
            return
        history, truncated, reset = replay
        if self.profile.plain:
            connection.send(SubscribedFrame(topics=granted, history=history))
            return
        cut = len(history)
        if len(history) > 1 and self.world.fault(self.profile.in_parts):
            cut = self.world.random.between(1, len(history) - 1)
        connection.send(
            SubscribedFrame(
                topics=granted,
                history=history[:cut],
                positions=positions,
                timestamp=timestamp,
                truncated=truncated or None,
                reset=reset or None,
                denied=denied,
                more=True if cut < len(history) else None,
                ref=frame.ref,
            )
        )
        if cut < len(history):
            rest = SubscribedFrame(topics=granted, history=history[cut:], ref=frame.ref)
            self.world.after(
                self.world.random.between(0, 50), lambda: self._finish(connection, frame, rest)
            )
        elif frame.presence:
            self._show_all(connection, granted)

    def _finish(self, connection: Connection, frame: SubscribeFrame, rest: SubscribedFrame) -> None:
        connection.send(rest)
        if frame.presence:
            self._show_all(connection, rest.topics)

    # ---------------------------------------------------------------- publish

    def _publish(self, connection: Connection, frame: PublishFrame) -> None:
        if frame.messages is not None:
            results = [self._one(message) for message in frame.messages]
            if frame.ref is not None:
                connection.send(PublishedFrame(results=results, ref=frame.ref))
            return
        assert frame.message is not None
        result = self._one(frame.message)
        if result.error is not None:
            error = result.error
            connection.send(
                ErrorFrame(
                    code=error.code,
                    message=error.message,
                    retry_after_ms=error.retry_after_ms,
                    ref=frame.ref,
                )
            )
        elif frame.ref is not None:
            connection.send(
                PublishedFrame(
                    id=result.id,
                    timestamp=result.timestamp,
                    seq=result.seq,
                    duplicate=result.duplicate,
                    ref=frame.ref,
                )
            )

    def _one(self, message: Publication) -> PublishResult:
        profile = self.profile
        if not profile.plain and self.world.fault(profile.limits_rate):
            wait = self.world.random.between(50, 500)
            return PublishResult(
                error=ErrorInfo(code="rate_limited", message="slow down", retry_after_ms=wait)
            )
        if message.topic == SECRET:
            return PublishResult(error=ErrorInfo(code="forbidden", message="no"))
        assert message.id is not None
        known = self.ids.get(message.id) if profile.idempotent else None
        record = known or self.publish(message.topic, message.id)
        assert record is not None
        self.ids[message.id] = record
        return PublishResult(
            id=message.id,
            timestamp=record.message.timestamp,
            seq=record.message.seq,
            duplicate=True if known else None,
        )
