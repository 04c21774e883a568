"""Runs a plan: processes, clients and faults; then waits until the run settles, and checks it."""

from __future__ import annotations

import asyncio
import time
import traceback
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from tests import forked
from tests.chaos.actors import (
    REQUEST_WITHIN,
    Actor,
    HttpActor,
    Publisher,
    ReaderActor,
    RoamerActor,
    SdkActor,
)
from tests.chaos.checker import EVENTUAL, Violation, check
from tests.chaos.networks import HOST, Network
from tests.chaos.peers import Peer
from tests.chaos.readers import Whims
from tests.chaos.records import Gap, History, Message
from tests.chaos.world import World, logs
from tests.conformance.peer_process import PeerGone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tests.chaos.plan import Client, Fault, Plan, Stream
    from tests.conformance.peer_process import Language

CHECK_EVERY: Final = 0.3
LOOKS: Final = 90
"""Number of checks within which the run must settle. Each takes longer on a busy machine."""
RIGHT: Final = 2
"""Consecutive checks that must pass, because a late message may arrive twice."""
RUN_WITHIN: Final = 600.0
PEER_STARTS_WITHIN: Final = 120.0
SWITCH: Final = "http0"


@dataclass(slots=True)
class Report:
    """The result of a run.

    Attributes:
        plan: The plan.
        violations: The broken promises.
        publications: Number of publishes.
        acknowledged: Number of acknowledged publishes.
        deliveries: Number of messages that subscribers received.
        gaps: Number of gaps that they received.
        seconds: Duration of the run.
        notes: Other output of the clients.
        logs: Output of the nodes, and what the subscriptions of violations received.
    """

    plan: Plan
    violations: list[Violation] = field(default_factory=list[Violation])
    publications: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    gaps: int = 0
    seconds: float = 0.0
    settled: float = 0.0
    notes: list[str] = field(default_factory=list[str])
    logs: dict[str, Any] = field(default_factory=dict[str, Any])


class Stage:
    """The processes of both SDKs, which successive runs share.

    Args:
        built: Folder of the TypeScript peer.
    """

    def __init__(self, built: Path) -> None:
        self._built = built
        self._peers: dict[Language, Peer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(peer.stop() for peer in self._peers.values()))

    async def peer(self, language: Language) -> Peer:
        """Return the process of a language; start a new one if it has ended."""
        found = self._peers.get(language)
        if found is None or found.gone:
            found = await Peer.start(language, self._built, within=PEER_STARTS_WITHIN)
            self._peers[language] = found
        return found

    async def run(self, plan: Plan) -> Report:
        """Run a plan.

        Raises:
            ForksGone: The servers ended with the process that had forked them.
        """
        began = time.monotonic()
        report = Report(plan)
        with TemporaryDirectory(prefix="chaos-") as folder:
            try:
                async with asyncio.timeout(RUN_WITHIN):
                    await _Run(plan, Path(folder), self, report).carry_out()
            except Exception:
                text = traceback.format_exc()
                report.violations.append(Violation("carried_out", "the run", "", text))
            finally:
                report.seconds = time.monotonic() - began
                report.logs |= logs(Path(folder))
                await self._clear(report)
        if report.violations:
            forked.check()
        return report

    async def _clear(self, report: Report) -> None:
        for peer in list(self._peers.values()):
            try:
                trouble = await peer.reset()
            except PeerGone as error:
                report.notes.append(f"{peer.language}: {error}")
            else:
                report.notes += [f"{peer.language}: {each['trouble']}" for each in trouble]


class _Run:
    def __init__(self, plan: Plan, folder: Path, stage: Stage, report: Report) -> None:
        self._plan = plan
        self._stage = stage
        self._report = report
        self._began = time.monotonic()
        self._history = History(retained=plan.settings.get("history_max_messages", 100))
        self._world = World(plan, folder, self._now)
        self._actors: dict[str, Actor] = {}
        self._past: set[str] = set()
        self._acting = False
        # Faults to which others refer, but which were removed from the plan.
        names = {each.name for each in plan.faults}
        self._absent = {each.beyond for each in plan.faults} - names

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def carry_out(self) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._world)
            for client in self._plan.clients:
                actor = await self._cast(client)
                stack.push_async_callback(actor.network.end)
                stack.push_async_callback(actor.leave)
                self._actors[client.name] = actor
                self._history.clients.append(actor.end)
            early = [each for each in self._actors.values() if each.client.arrives == 0]
            await asyncio.gather(*(actor.arrive() for actor in early))
            await self._act()
            await self._settle()

    async def _cast(self, client: Client) -> Actor:
        network = Network(*self._world.ports(client.node))
        await network.start()
        token = self._world.token(client.name, insider=client.insider)
        given = (client, token, network, self._history, self._now)
        if client.kind == "python" or client.kind == "typescript":
            return SdkActor(await self._stage.peer(client.kind), *given)
        if client.kind == "http":
            return HttpActor(*given)
        whims = Whims(
            f"{self._plan.seed} {client.name}",
            client.restless,
            lambda: self._now() if self._acting else 0.0,
        )
        if client.kind == "roamer":
            topics = sorted({one.topic for one in self._plan.streams})
            return RoamerActor(topics, whims, *given)
        return ReaderActor(whims, *given)

    # ------------------------------------------------------------ clients and faults

    async def _act(self) -> None:
        """Run the clients and faults of the plan, starting now."""
        offset = self._now()
        for actor in self._actors.values():
            for subscription in self._history.subscriptions:
                if subscription.client == actor.client.name and subscription.began is not None:
                    subscription.asked -= offset
                    subscription.began -= offset
        self._began += offset
        self._acting = True
        self._world.losses = self._history.losses
        async with asyncio.TaskGroup() as group:
            for fault in self._plan.faults:
                group.create_task(self._suffer(fault))
            for stream in self._plan.streams:
                group.create_task(self._publish(stream))
            for actor in self._actors.values():
                if actor.client.arrives > 0:
                    group.create_task(self._arrive(actor))

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))

    async def _arrive(self, actor: Actor) -> None:
        await self._until(actor.client.arrives)
        try:
            await actor.arrive()
        except TimeoutError:
            # The checker reports the messages that it did not get.
            return

    async def _publish(self, stream: Stream) -> None:
        actor = self._actors[stream.by]
        assert isinstance(actor, Publisher)
        async with asyncio.TaskGroup() as group:
            for number in range(stream.count):
                await self._until(stream.first + number * stream.every)
                for _ in range(stream.burst):
                    one = actor.begin(stream.topic, stream.size)
                    group.create_task(actor.publish(one))

    async def _suffer(self, fault: Fault) -> None:
        await self._until(fault.at)
        await self._over(fault.behind)
        try:
            await self._suffer_it(fault)
        finally:
            self._past.add(fault.name)

    async def _over(self, name: str) -> None:
        """Wait for a publication or a fault, if the plan has one with this name."""
        while name:
            one = self._history.publications.get(name)
            if one is not None and one.outcome is not None:
                return
            if name in self._past or name in self._absent:
                return
            await asyncio.sleep(0.02)

    async def _last(self, fault: Fault) -> None:
        await asyncio.sleep(fault.lasts)
        await self._over(fault.beyond)

    async def _suffer_it(self, fault: Fault) -> None:
        if fault.on == "*":
            actors = list(self._actors.values())
        elif fault.on in self._actors:
            actors = [self._actors[fault.on]]
        else:
            await self._world.suffer(fault)
            return
        if fault.kind == "move":
            for actor in actors:
                actor.network.move(self._world.ports(fault.to))
            return
        await asyncio.gather(
            *(actor.network.suffer(fault.kind, partial(self._last, fault)) for actor in actors)
        )

    # ------------------------------------------------------------ the end

    async def _settle(self) -> None:
        """Wait until every promise holds, or the time has elapsed."""
        began = time.monotonic()
        writer = self._actors[SWITCH]
        assert isinstance(writer, HttpActor)
        topics = sorted({one.topic for one in self._plan.streams})
        async with asyncio.TaskGroup() as group:
            for node in range(self._plan.nodes):
                for topic in topics:
                    one = writer.begin(topic, 0, final=True)
                    one.node = node
                    group.create_task(writer.publish_at(one, self._world.ports(node)[1]))
        violations: list[Violation] = []
        right = 0
        async with httpx.AsyncClient(
            trust_env=False,
            timeout=REQUEST_WITHIN,
            headers={"Authorization": f"Bearer {self._world.token('root', admin=True)}"},
        ) as http:
            for _ in range(LOOKS):
                await asyncio.gather(*(actor.look() for actor in self._actors.values()))
                await self._count(http)
                violations = self._check()
                right = 0 if any(each.rule in EVENTUAL for each in violations) else right + 1
                if right == RIGHT:
                    break
                await asyncio.sleep(CHECK_EVERY)
        report, history = self._report, self._history
        report.settled = time.monotonic() - began
        report.violations = violations
        report.publications = len(history.publications)
        report.acknowledged = sum(
            one.outcome == "acknowledged" for one in history.publications.values()
        )
        if violations:
            report.logs |= _received(history, violations)
        received = [entry for each in history.subscriptions for entry in each.received]
        report.deliveries = sum(isinstance(entry, Message) for entry in received)
        report.gaps = len(received) - report.deliveries

    def _check(self) -> list[Violation]:
        history, plan = self._history, self._plan
        if plan.topology != "mesh":
            return check(history)
        found: list[Violation] = []
        for node in range(plan.nodes):
            names = {one.name for one in plan.clients if one.node == node}
            found += check(history.of_node(node, names))
        return found

    async def _count(self, http: httpx.AsyncClient) -> None:
        """Return the users who should be present, and those who are."""
        topics = sorted({topic for one in self._plan.clients for topic in one.topics})
        history = self._history
        history.members = {
            topic: [
                one.name
                for one in self._plan.clients
                if one.kind != "stream" and one.insider and topic in one.topics
            ]
            for topic in topics
            if "*" not in topic
        }
        for node in range(self._plan.nodes):
            for topic in history.members:
                url = f"http://{HOST}:{self._world.ports(node)[1]}/v1/topics/{topic}/presence"
                try:
                    members = (await http.get(url)).raise_for_status().json()["members"]
                except httpx.HTTPError as error:
                    history.present[f"node{node}", topic] = [f"no answer: {error!r}"]
                else:
                    history.present[f"node{node}", topic] = [one["user_id"] for one in members]


def _received(history: History, violations: Sequence[Violation]) -> dict[str, str]:
    """What the subscriptions of these violations received, by client and topic."""
    found: dict[str, str] = {}
    for who, topic in dict.fromkeys((each.who, each.topic) for each in violations):
        lines = [
            f"{entry.at:7.3f} s {_entry(entry)}"
            for each in history.subscriptions
            if each.client == who
            for entry in each.received
            if entry.topic == topic
        ]
        if lines:
            found[f"received by {who} of {topic}"] = "\n".join(lines)
    return found


def _entry(entry: Message | Gap) -> str:
    if isinstance(entry, Message):
        return f"{entry.id} at {entry.seq}"
    return f"gap {entry.reason} from {entry.first} to {entry.last}"
