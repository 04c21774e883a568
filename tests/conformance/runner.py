"""Runs the steps of a scenario in one language."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.conformance.matching import mismatches
from tests.conformance.peer_process import PATIENCE, PeerGone
from tests.conformance.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.peer_process import Json, PeerProcess
    from tests.conformance.scenarios import Scenario


class Failed(Exception):
    """A step differs from the scenario; the text contains the transcript without tokens."""


class _Differs(Exception):
    pass


async def run(scenario: Scenario, peer: PeerProcess, folder: Path) -> None:
    """Run one scenario.

    Args:
        scenario: The scenario.
        peer: The process of a language; its clients are closed at the end.
        folder: Folder for files that the server reads.

    Raises:
        Failed: The run differs from the scenario.
    """
    async with World(scenario.given, peer, folder) as world:
        running = _Run(world)
        place = "at the end"
        try:
            for n, step in enumerate(scenario.steps, 1):
                place = f"step {n}: {step}"
                async with asyncio.timeout(PATIENCE):
                    await running.perform(step)
            place = "at the end"
            problem = None
        except (_Differs, TimeoutError, PeerGone) as error:
            problem = str(error) or f"nothing came within {PATIENCE:g} s"
        except Exception as error:
            problem = f"the step cannot be performed: {type(error).__name__}: {error}"
        transcript = "\n".join(line[:2_000] for line in peer.transcript[-200:])
        try:
            trouble = await peer.reset()
        except PeerGone as error:
            problem = f"{problem or ''}\n{error}"
        else:
            if problem is None and trouble:
                problem = f"behind its back: {trouble}"
        if problem is not None:
            raise Failed(
                world.masked(
                    f"{scenario.name} ({peer.language})\n{problem}\n{place}\n{transcript}\n"
                    f"{peer.output[-4_000:]}"
                )
            )


@dataclass(frozen=True)
class Outcome:
    """The result of a scenario.

    Attributes:
        passed: Whether the run matched the scenario.
        problem: Reason for which the whole run fails; None if it passed, or is known to fail.
    """

    passed: bool
    problem: str | None


async def outcome(
    scenario: Scenario, peer: PeerProcess, folder: Path, known: str | None
) -> Outcome:
    """Run one scenario that may be known to fail.

    Args:
        scenario: The scenario.
        peer: The process of a language.
        folder: Folder for files that the server reads.
        known: Reason for a known failure; None if it must pass.
    """
    try:
        await run(scenario, peer, folder)
    except Failed as failed:
        return Outcome(False, None if known else str(failed))
    if known is None:
        return Outcome(True, None)
    return Outcome(
        True,
        f"{scenario.name} ({peer.language}) passes, though it is listed as a known failure: "
        f"{known}. Remove it from known_failures.yaml.",
    )


@dataclass
class _Run:
    world: World

    def __post_init__(self) -> None:
        self._later: dict[str, asyncio.Future[Json]] = {}

    async def perform(self, step: Json) -> None:
        match step:
            case {"client": name}:
                options = self.world.options(
                    step.get("as"),
                    self.world.fill(step.get("options", {})),
                    direct=step.get("direct", False),
                )
                self._judge(await self.world.peer.ask("new", name, **options), step)
            case {"do": do}:
                begun = self.world.peer.begin(
                    do, step.get("by"), self.world.fill(step.get("with", {}))
                )
                if "later" in step:
                    self._later[step["later"]] = begun
                else:
                    await self._answered(begun, step)
            case {"answer": name}:
                await self._answered(self._later.pop(name), step)
            case {"see": name}:
                await self._see(name, step)
            case {"fault": fault}:
                await self.world.fault(self.world.fill(fault))
            case {"server": "stop"}:
                await self.world.stop()
            case {"server": "start"}:
                await self.world.start()
            case {"server": "restart"}:
                await self.world.stop()
                await self.world.start()
            case {"wire": act}:
                await self._wire(act, step)
            case {"plain": act}:
                self._plain(act, step)
            case _:
                raise AssertionError(f"no such step: {step}")

    async def _answered(self, begun: asyncio.Future[Json], step: Json) -> None:
        self._judge(await begun, step)

    def _judge(self, answer: Json, step: Json) -> None:
        if "fails" in step:
            if "fails" not in answer:
                raise _Differs(f"it did not fail; it gave {answer['gives']!r}")
            self._compare(step["fails"], answer["fails"])
        elif "fails" in answer:
            raise _Differs(f"it failed: {answer['fails']}")
        elif "gives" in step:
            self._compare(step["gives"], answer["gives"])

    def _compare(self, expected: Any, seen: Any) -> None:
        if found := self._differences(expected, seen):
            raise _Differs("\n".join(found))

    def _differences(self, expected: Any, seen: Any) -> list[str]:
        world = self.world
        return mismatches(world.fill(expected), seen, world.saved, world.peer.language)

    async def _see(self, name: str, step: Json) -> None:
        stream = self.world.stream(name)
        if "data" in step:
            for data in self.world.fill(step["data"]):
                self._compare({"message": {"data": data}}, await stream.take())
        for expected in step.get("next", ()):
            self._compare(expected, await stream.take())
        if "until" in step:
            while self._differences(step["until"], await stream.take()):
                pass
        if "any_order" in step:
            seen = [await stream.take() for _ in step["any_order"]]
            self._compare({"$set": step["any_order"]}, seen)

    async def _wire(self, act: str, step: Json) -> None:
        wire = self.world.wire
        assert wire is not None, "the scenario is given no wire"
        match act:
            case "rule":
                wire.rule(**self.world.fill(step["rule"]))
            case "block":
                wire.block(step["how"])
            case "unblock":
                wire.block(None)
            case "cut":
                wire.cut()
            case "close":
                await wire.close(step["code"])
            case "release":
                await wire.release()
            case "add":
                await wire.add(self.world.fill(step["frames"]))
            case _:
                raise AssertionError(act)

    def _plain(self, act: str, step: Json) -> None:
        plain = self.world.plain
        assert plain is not None, "the scenario is given no plain server"
        match act:
            case "publish":
                for data in self.world.fill(step["data"]):
                    plain.publish(step["topic"], step.get("type", "message"), data)
            case "cut":
                plain.cut()
            case "tick":
                plain.now += step["ms"]
            case _:
                raise AssertionError(act)
