"""Passes valid and wrong values for each argument of each call to both SDKs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.conformance.arguments import Call, calls, outcome, replaced, values
from tests.conformance.peer_process import LANGUAGES, PATIENCE, Language
from tests.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conformance.arguments import Argument
    from tests.conformance.peer_process import PeerProcess, Peers


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for the clients of both languages."""
    folder = tmp_path_factory.mktemp("server")
    async with World({}, await peers.get("python"), folder) as world:
        yield world


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("call", [pytest.param(call, id=call.id) for call in calls()])
async def test_each_value_of_an_argument_is_accepted_or_refused_with_the_listed_code_and_field(
    call: Call, language: Language, peers: Peers, world: World
) -> None:
    peer = await peers.get(language)
    differences: list[str] = []
    try:
        for argument in call.arguments:
            seen = await _outcomes(call, argument, peer, world)
            differences += [
                f"{argument.path}: {name}: expected {expected[language]}, came {seen[name]}"
                for name, expected in argument.outcomes.items()
                if seen[name] != expected[language]
            ]
    finally:
        trouble = await peer.reset()
    assert not differences, "\n".join([f"{call.do}, {language}", *differences])
    assert not trouble, trouble


def test_each_value_of_the_file_is_passed_to_some_argument() -> None:
    tested = {name for call in calls() for one in call.arguments for name in one.outcomes}
    assert tested == values().keys()


async def _outcomes(
    call: Call, argument: Argument, peer: PeerProcess, world: World
) -> dict[str, str]:
    """Make the call with every value on one client."""
    client = argument.path
    # An id is unique for each sender.
    token = world.token(f"{peer.language}-root", kind="admin")
    options = world.options(None, {"token": token, "operation_timeout": 5_000}, direct=True)
    if call.do != "new":
        await peer.ask("new", client, **options)
        await peer.ask("connect", client)
        await peer.ask("respond", client, sub=client, topics="demo.asked", behaviour={})
        await peer.ask(
            "subscribe", client, sub="member", topics="demo.a", mode="take", presence=True
        )
    begun: dict[str, asyncio.Future[dict[str, Any]]] = {}
    for name in argument.outcomes:
        value = world.fill(values()[name])
        given = replaced(options if call.do == "new" else call.given, argument.path, value)
        if "sub" in given:
            given["sub"] = f"{argument.path} {name}"
        by = f"{client} {name}" if call.do == "new" else client
        begun[name] = peer.begin(call.do, by, given)
        if call.do == "update_presence":  # the newest replaces those that wait
            await asyncio.wait([begun[name]], timeout=PATIENCE)
    await asyncio.wait(begun.values(), timeout=PATIENCE)
    if call.do != "new":
        await peer.ask("close", client, timeout=0)
    return {
        name: outcome(answer.result(), argument.path) if answer.done() else "no answer"
        for name, answer in begun.items()
    }
