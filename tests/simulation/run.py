"""One run of a seed: a scenario, faults, a calm phase, and all checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import Publication
from tests.simulation.checks import (
    OwnPresence,
    Violation,
    check_end,
    check_presence,
    check_publishes,
    check_stream,
    check_updates,
)
from tests.simulation.profile import PATTERNS, PEOPLE, SECRET, TOPICS, draw_profile
from tests.simulation.server import Server, matches
from tests.simulation.shell import Shell
from tests.simulation.world import START, World
from tests.traces import events

if TYPE_CHECKING:
    from tests.simulation.shell import Link
    from tests.traces.events import SendPolicy, Subscribe

ROUGH = 60_000
"""Milliseconds of the phase with faults."""

CALM = 60_000
"""Milliseconds of the calm phase, in which everything must recover."""

UPDATES = 1_000_000
"""The `ref` of the first update of presence, above those of all publishes."""


@dataclass(frozen=True, slots=True)
class Result:
    """Counts of events for statistics, and the log for comparison between languages."""

    delivered: int
    gaps: int
    drops: int
    published: int
    settled: int
    lines: list[str] | None

    def digest(self) -> str:
        """A hash of the log."""
        return sha256("\n".join(self.lines or []).encode()).hexdigest()


class Run:
    """A running scenario."""

    def __init__(self, seed: int, *, log: bool = False) -> None:
        self.world = World(seed)
        self.profile = draw_profile(self.world.random)
        self.server = Server(self.world, self.profile)
        self.shell = Shell(self.world, self.server, self.profile, log=log)
        self.subscriptions: list[Subscribe] = []
        self.ended: set[int] = set()
        self.publishes: list[events.Publish] = []
        self.unseen: dict[int, set[tuple[str, int]]] = {}
        self.lost: set[tuple[str, int]] = set()
        self.own_presence = OwnPresence()
        self.updates: list[events.UpdatePresence] = []
        self.server.on_reset = self._reset

    def run(self) -> Result:
        """Run everything from the first event to the last check."""
        world, random = self.world, self.world.random
        for _ in range(random.between(1, 3)):
            self._subscribe()
        self.shell.feed(events.Connect())
        world.after(0, self._step)
        world.run(START + ROUGH)
        self._calm()
        world.run(START + ROUGH + CALM)
        if self.shell.session.lifecycle.state != "connected":  # an earlier token may have expired
            world.run(world.now + 10_000)
        if self.shell.session.lifecycle.state != "connected":
            raise Violation(f"{self.shell.session.lifecycle.state} although all is calm")
        for event in self.subscriptions:
            if event.sub not in self.ended:
                check_stream(self.server, self.shell, event, self.unseen[event.sub])
            if event.presence and event.sub not in self.ended and not self.profile.plain:
                check_presence(self.server, self.shell, event)
        if not (self.profile.plain or self.profile.refuses_now or self.profile.denies_now):
            self.own_presence.check(self.server)
        check_updates(self.shell, self.updates)
        for _ in range(random.below(4)):
            self._publish()
        self._update_presence()
        self.shell.feed(events.Close() if random.chance(700) else events.Abort())
        world.run(world.now + 20_000)
        check_end(self.shell)
        check_publishes(
            self.server,
            self.shell,
            self.publishes,
            ordered=not self.profile.limits_rate and self.profile.idempotent,
        )
        check_updates(self.shell, self.updates)
        return Result(
            delivered=sum(len(stream) for stream in self.shell.streams.values()),
            gaps=sum(
                type(step).__name__ == "Gap"
                for stream in self.shell.streams.values()
                for step in stream
            ),
            drops=self.shell.drops,
            published=sum(len(records) for records in self.server.published.values()),
            settled=len(self.publishes),
            lines=self.shell.lines,
        )

    def _calm(self) -> None:
        self.world.calm = True
        link = self.shell.link
        if link is not None and link.frozen:
            link.frozen = False
            link.cut(1006)
        for topic in TOPICS:  # the loss of a live message becomes visible with the next message
            self.world.after(30_000, partial(self.server.publish, topic))

    # ---------------------------------------------------------------- the scenario

    def _step(self) -> None:
        """Do a random small action, and schedule the next one."""
        world, random, profile = self.world, self.world.random, self.profile
        if world.calm:
            return
        world.after(random.between(0, 800), self._step)
        what = random.below(100)
        if what < 55:
            burst = 130 if profile.plain and random.chance(15) else random.between(1, 4)
            topic = random.pick(TOPICS)
            for _ in range(burst):
                self._publish_elsewhere(topic)
        elif what < 75:
            self._publish()
        elif what < 80:
            self._subscribe()
        elif what < 83:
            self._unsubscribe()
        elif what < 85:
            self.shell.feed(events.Woke())
        elif what < 87 and self.publishes:
            self.shell.feed(events.Expire(random.pick(self.publishes).ref))
        elif what < 91:
            self._update_presence()
        elif world.fault(profile.people):
            for _ in range(random.between(1, 4)):
                self._others()
        if world.fault(profile.resets):
            self.server.reset(random.pick(TOPICS))
        link = self._connected()
        if link is not None:
            if world.fault(profile.cuts):
                self._cut(link, 40)
            elif world.fault(profile.freezes):
                link.frozen = True

    def _connected(self) -> Link | None:
        """The link of a session that is connected and receives from the server."""
        link = self.shell.link
        if link is None or link.frozen or self.shell.session.lifecycle.state != "connected":
            return None
        return link

    def _cut(self, link: Link, within: int) -> None:
        """Lose the connection within so many milliseconds."""
        random = self.world.random
        code = random.pick((1006, 1006, None, 1001, 1011, 4500, 4408))
        self.world.after(random.between(0, within), lambda: None if link.frozen else link.cut(code))

    def _publish_elsewhere(self, topic: str) -> None:
        ttl = None
        if self.world.random.chance(self.profile.short_ttl):
            ttl = self.world.random.pick((0, 1, 3))
            if self.profile.plain and ttl:
                ttl = None  # a plain peer cannot tell which of several messages were removed
        self.server.publish(topic, ttl=ttl)

    def _publish(self) -> None:
        random = self.world.random
        ref = len(self.publishes) + 1
        batch = random.chance(200)
        topic = SECRET if random.chance(30) else random.pick(TOPICS)
        policy: SendPolicy = random.pick(("error", "drop_oldest", "latest"))
        count = random.between(1, 3) if batch else 1
        messages = tuple(Publication(topic=topic, data=ref, id=f"c{ref}-{n}") for n in range(count))
        key = "k" if policy == "latest" and not batch else None
        background = ref % 5 == 0
        event = events.Publish(ref, messages, 100 * count, policy, key, batch, background)
        self.publishes.append(event)
        self.shell.feed(event)

    def _subscribe(self) -> None:
        random = self.world.random
        if len(self.subscriptions) >= 8:
            return
        sub = len(self.subscriptions) + 1
        topics = dict.fromkeys(random.pick(PATTERNS) for _ in range(random.between(1, 2)))
        if random.chance(100):
            topics[SECRET] = None
        plain = self.profile.plain
        since = self.world.now if random.chance(300) or plain else None
        if plain:
            since = random.pick((since, since, self.world.now - 3_000, None))
        presence = random.chance(300)
        history = random.pick((None, None, None, 1, 5))
        known = random.pick(TOPICS) if random.chance(200) else ""
        after: dict[str, int] = {}
        log = self.server.logs.get(known)
        if log is not None and not plain and any(matches(p, known) for p in topics):
            after[known] = log.base - 1 + random.below(log.next - log.base + 1)
            history = None
        if plain:
            history = None
        event = events.Subscribe(sub, tuple(topics), since, history, after, presence)
        self.subscriptions.append(event)
        self.unseen[sub] = set(self.lost)
        self.shell.streams[sub] = []
        self.shell.feed(event)
        link = self._connected()
        if plain and link is not None and self.world.fault(300):
            self._cut(link, 3_000)  # the replay must have messages from before `since`

    def _unsubscribe(self) -> None:
        if self.subscriptions:
            event = self.world.random.pick(self.subscriptions)
            self.ended.add(event.sub)
            self.own_presence.forget(event.topics)
            self.shell.feed(events.Unsubscribe(event.sub))

    def _update_presence(self) -> None:
        """Update the user's own presence."""
        random = self.world.random
        topic = random.pick((None, *TOPICS))
        key = random.pick(("status", "cursor", "cursor"))
        value = f"s{random.below(100)}" if key == "status" or random.chance(800) else None
        for subscription in self.subscriptions:
            joined = self.shell.joined.get(subscription.sub)
            if subscription.sub not in self.ended and joined:
                for name in {*joined[-1].topics} & {*(TOPICS if topic is None else (topic,))}:
                    self.own_presence.record(name, key, value)
        event = events.UpdatePresence(topic, {key: value}, UPDATES + len(self.updates))
        self.updates.append(event)
        self.shell.feed(event)

    def _others(self) -> None:
        """Let another member join, leave or update its presence."""
        random, rooms = self.world.random, self.server.rooms
        topic, who = random.pick(TOPICS), random.pick(PEOPLE)
        what = random.below(3)
        if what == 0:
            rooms.leave(topic, who)
        elif what == 1:
            rooms.enter(topic, who)
        else:
            rooms.update(topic, who, {"status": f"s{random.below(100)}"})

    def _reset(self, topic: str, number: int) -> None:
        """Lose a log. A subscription without a position in it cannot know its content."""
        self.lost.add((topic, number))
        for event in self.subscriptions:
            if topic not in self.shell.positions(event.sub):
                self.unseen[event.sub].add((topic, number))


def simulate(seed: int, *, log: bool = False) -> Result:
    """Run a seed.

    Raises:
        Violation: A check has failed.
    """
    return Run(seed, log=log).run()
