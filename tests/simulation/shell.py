"""The driver in virtual time: performs effects, and owns timers, tokens and network faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.generated.wire import (
    MessageFrame,
    PresenceSnapshotFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.session.cursor import SeqCursor
from tests.simulation.records import Connection
from tests.traces import effects, events
from tests.traces.mapping import canonical, show_effect
from tests.traces.recorder import LoggedSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.wire import ClientFrame, PresenceMember, ServerFrame
    from tests.simulation.profile import Profile
    from tests.simulation.records import Start
    from tests.simulation.server import Server
    from tests.simulation.world import World
    from tests.traces.effects import Effect
    from tests.traces.events import Event


STREAMED = SubscribedFrame | MessageFrame | PresenceSnapshotFrame


class Link:
    """One transport: frames arrive in order, with a delay, until it is cut."""

    def __init__(self, shell: Shell, transport: str) -> None:
        self.shell = shell
        self.transport = transport
        self.world = shell.world
        self.alive = True
        self.frozen = False
        self.last_received = shell.world.now
        self.turn = 0
        self.arrives_up = self.arrives_down = 0
        self.connection = Connection(self.down, self.closed_by_server)

    def _arrival(self, last: int) -> int:
        return max(last, self.world.now + self.world.random.between(1, 20))

    def up(self, frame: ClientFrame) -> None:
        """Send a frame to the server."""
        self.arrives_up = self._arrival(self.arrives_up)
        self.world.after(self.arrives_up - self.world.now, lambda: self._arrived_up(frame))

    def _arrived_up(self, frame: ClientFrame) -> None:
        if self.alive and not self.frozen and self.connection.open:
            self.shell.server.receive(self.connection, frame)

    def down(self, frame: ServerFrame) -> None:
        """Send a frame to the client."""
        self.arrives_down = self._arrival(self.arrives_down)
        stream = self.connection.stream
        self.world.after(
            self.arrives_down - self.world.now, lambda: self._arrived_down(frame, stream)
        )

    def _arrived_down(self, frame: ServerFrame, stream: int) -> None:
        if stream != self.connection.stream and isinstance(frame, STREAMED):
            return  # from an event stream that was replaced
        if self.alive and not self.frozen:
            self.last_received = self.world.now
            self.shell.received(frame)

    def closed_by_server(self, code: int, reason: str, retry_after: int | None) -> None:
        """Close by the server: earlier frames still arrive."""
        self.shell.server.closed(self.connection)
        self.arrives_down = self._arrival(self.arrives_down)
        self.world.after(
            self.arrives_down - self.world.now, lambda: self._drop(code, reason, retry_after)
        )

    def cut(self, code: int | None, retry_after: int | None = None) -> None:
        """Lose the connection and all frames in transit."""
        if self.alive:
            self.shell.server.closed(self.connection)
            self._drop(code, "cut", retry_after)

    def _drop(self, code: int | None, reason: str, retry_after: int | None) -> None:
        if self.alive and not self.frozen:
            self.alive = False
            self.shell.link = None
            self.shell.feed(events.Dropped(code, reason, retry_after))

    def hang_up(self) -> None:
        """Close by the client."""
        self.alive = False
        self.shell.server.closed(self.connection)


class Shell:
    """Feeds events to a session and performs its effects.

    Attributes:
        streams: The deliveries and gaps of each subscription, in order.
        outcomes: Settlements by ref.
        lines: The log of the run in canonical form, if one is kept.
    """

    def __init__(self, world: World, server: Server, profile: Profile, *, log: bool) -> None:
        self.world = world
        self.server = server
        self.profile = profile
        self.session = LoggedSession(profile.options, world.random.unit)
        self.link: Link | None = None
        self.timers: dict[str, int] = {}
        self.fetches: set[int] = set()
        self.streams: dict[int, list[effects.Deliver | effects.Gap]] = {}
        self.joined: dict[int, list[effects.Joined]] = {}
        self.starts: dict[int, Start] = {}
        self.presence: dict[int, dict[str, dict[str, PresenceMember]]] = {}
        self.outcomes: dict[int, list[effects.Outcome]] = {}
        self.finished: list[effects.Finished] = []
        self.lines: list[str] | None = [] if log else None
        self.drops = 0
        self._answer = ""
        # While the timer `grace` fires: the rooms that the subscriptions knew before.
        self._expiring: set[tuple[int, str]] | None = None
        self._tokens = 0
        self._perform: dict[type[Effect], Callable[[Any], object]] = {
            effects.Fetch: self._fetch,
            effects.AbandonFetch: lambda effect: self.fetches.discard(effect.id),
            effects.Dial: self._dial,
            effects.HangUp: self._hang_up,
            effects.Send: self._send,
            effects.StartTimer: self._start_timer,
            effects.CancelTimer: self._cancel_timer,
            effects.Probe: lambda effect: world.after(
                100, lambda: self.feed(events.Probed(not self._blocked()))
            ),
            effects.ProbeHttp: lambda effect: world.after(
                100, lambda: self.feed(events.Answered(world.now % 3 > 0))
            ),
            effects.Deliver: lambda effect: self.streams[effect.sub].append(effect),
            effects.Gap: lambda effect: self.streams[effect.sub].append(effect),
            effects.Joined: self._join,
            effects.PresenceChanged: self._present,
            effects.Settle: lambda effect: self.outcomes.setdefault(effect.ref, []).append(
                effect.outcome
            ),
            effects.Finished: self.finished.append,
        }

    def feed(self, event: Event) -> None:
        """Pass one event to the session, and perform its effects."""
        produced = self.session.handle(event)
        if self.lines is not None:
            self.lines.append(f"{self.world.now} {_show_event(event)}")
            self.lines += [canonical(show_effect(effect)) for effect in produced]
        if isinstance(event, events.Dropped):
            self.drops += 1
        for effect in produced:
            perform = self._perform.get(type(effect))
            if perform is not None:
                perform(effect)

    def positions(self, sub: int) -> dict[str, int]:
        """Position of each topic of a subscription."""
        state = self.session.subscriptions.all.get(sub)
        cursor = None if state is None else state.cursor
        return cursor.positions if isinstance(cursor, SeqCursor) else {}

    def received(self, frame: ServerFrame) -> None:
        """Handle a received frame."""
        if isinstance(frame, SubscribedFrame):
            self._answer = frame.ref or ",".join(frame.topics)
        self.feed(events.Received(frame, self.world.now))

    # ---------------------------------------------------------------- effects

    def _fetch(self, effect: effects.Fetch) -> None:
        assert not self.fetches, "two token callbacks in flight"
        self.fetches.add(effect.id)
        world = self.world
        if world.fault(self.profile.callback_fails):
            failed = events.TokenFailed(effect.id, refused=False, message="503")
            world.after(50, lambda: self._fetched(effect.id, failed))
            return
        self._tokens += 1
        value = f"t{self._tokens}"
        life = self.profile.token_life if self.profile.token_life and not world.calm else 10_000_000
        took = 12_000 if world.fault(self.profile.callback_hangs) else world.random.between(1, 300)

        def answer() -> None:
            self.server.tokens[value] = world.now + life
            known = life if world.random.chance(500) else None
            self._fetched(effect.id, events.Token(effect.id, value, known))

        world.after(took, answer)

    def _fetched(self, id: int, event: Event) -> None:
        self.fetches.discard(id)
        self.feed(event)  # an answer arrives even if it is no longer awaited

    def _blocked(self) -> bool:
        return self.profile.websocket_blocked and not self.world.calm

    def _dial(self, effect: effects.Dial) -> None:
        assert self.link is None, "two transports at a time"
        link = self.link = Link(self, effect.transport)
        world = self.world
        if effect.transport == "websocket" and self._blocked():
            world.after(30, lambda: link.cut(None))
        elif world.fault(self.profile.refuses_dial):
            retry_after = world.random.pick((None, None, 700))
            world.after(30, lambda: link.cut(1006 if retry_after is None else 1013, retry_after))
        elif not world.fault(self.profile.black_hole):
            world.after(world.random.between(1, 50), lambda: self._opened(link))

    def _opened(self, link: Link) -> None:
        if link.alive:
            self.server.opened(link.connection)
            self.feed(events.Opened(incremental=link.transport == "websocket"))

    def _hang_up(self, effect: effects.HangUp) -> None:
        assert self.link is not None, "nothing to hang up"
        self.link.hang_up()
        self.link = None

    def _send(self, effect: effects.Send) -> None:
        assert self.link is not None, "no transport to send on"
        frame = effect.frame
        if self.link.transport == "sse" and isinstance(frame, SubscribeFrame):
            self._replace_stream(self.link)
        self.link.up(frame)

    def _replace_stream(self, link: Link) -> None:
        """The first `subscribe` of a turn opens a new stream; frames in transit are lost."""
        if link.turn != self.world.now:
            link.turn = self.world.now
            link.connection.stream += 1
            link.connection.patterns.clear()
            link.connection.watched.clear()

    def _start_timer(self, effect: effects.StartTimer) -> None:
        name = effect.name
        self.timers[name] = number = self.world.after(effect.after, lambda: self._due(name, number))

    def _due(self, name: events.TimerName, number: int) -> None:
        if self.timers.get(name) == number:
            del self.timers[name]
            idle = 0 if self.link is None else self.world.now - self.link.last_received
            if self.link is not None and self.link.transport == "sse" and not self.link.frozen:
                idle = min(idle, 15_000)  # comments keep an event stream alive
            if name == "grace":
                self._expiring = {(sub, topic) for sub, of in self.presence.items() for topic in of}
            self.feed(events.TimerFired(name, idle))
            self._expiring = None

    def _cancel_timer(self, effect: effects.CancelTimer) -> None:
        assert effect.name in self.timers, f"{effect.name} does not run"
        del self.timers[effect.name]

    def _join(self, effect: effects.Joined) -> None:
        if not self.joined.setdefault(effect.sub, []) and self.link is not None:
            key = (self.link.connection, self._answer)
            if key in self.server.starts:
                self.starts[effect.sub] = self.server.starts[key]
        self.joined[effect.sub].append(effect)

    def _present(self, effect: effects.PresenceChanged) -> None:
        """Check that changes match the previous members, and the new members match the changes."""
        rooms = self.presence.setdefault(effect.sub, {})
        before = rooms.get(effect.topic)
        if self._expiring is not None and (effect.sub, effect.topic) not in self._expiring:
            before = None
        members = {member.client_id: member for member in effect.members}
        member, change = effect.member, effect.change
        # A later or temporarily denied subscription does not receive what the others know.
        if member is not None and before is not None and not self.profile.denies_now:
            known = member.client_id in before
            assert known == (change not in ("join", "connect")), f"{change} twice"
            expected = {id: one for id, one in before.items() if id != member.client_id}
            if change not in ("leave", "disconnect"):
                expected[member.client_id] = member
            if self._expiring is not None:
                # All members that leave together are missing from each list.
                assert set(members) <= set(expected), f"{change} adds others"
                members = expected
            assert set(members) == set(expected), f"{change} changes others"
        rooms[effect.topic] = members


def _show_event(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, events.Received):
        return f"{name} {canonical(event.frame.wire())}"
    if isinstance(event, events.TimerFired):
        return f"{name} {event.name} {event.idle}"
    if isinstance(event, events.Publish | events.Subscribe):
        return f"{name} {event.ref if isinstance(event, events.Publish) else event.sub}"
    return name
