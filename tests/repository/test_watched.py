"""Programs that the runners of the TypeScript tests start do not outlive them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests import programs

BOUND = 60
SCRIPT = Path(__file__).parents[1] / "js" / "watched.mjs"
CHILD = "sleep 1000 & echo runs >&2; wait"
"""A shell with a child, as a browser has."""


def runner(*command: str, limit: str = "undefined", then: str = "") -> tuple[str, ...]:
    """A program that starts another one as the runners do, and prints how it ended."""
    source = (
        f"import {{ endGroup, watched }} from {json.dumps(SCRIPT.as_uri())};"
        f"const child = watched({json.dumps(command)}, {{}}, ['pipe', 2], {limit});"
        f"child.stdout.on('data', () => {{ {then} }});"
        "child.on('exit', (...end) => console.log(...end));"
    )
    return ("node", "--input-type=module", "--eval", source)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_a_program_and_its_children_end_with_a_killed_runner(number: signal.Signals) -> None:
    async with programs.started(*runner("sh", "-c", CHILD), within=BOUND) as process:
        assert process.stderr is not None
        assert await process.stderr.readline() == b"runs\n"
        process.send_signal(number)
        # The pipe ends with the last process that could write to it.
        assert await process.stderr.read() == b""


async def test_the_runner_gets_the_exit_code_and_the_program_no_input() -> None:
    async with programs.started(*runner("sh", "-c", "cat; exit 3"), within=BOUND) as process:
        out, errors = await process.communicate()
    assert (out, errors) == (b"3 null\n", b"")


async def test_the_children_of_a_program_end_with_it() -> None:
    async with programs.started(*runner("sh", "-c", "sleep 1000 &"), within=BOUND) as process:
        out, _ = await process.communicate()
    assert out == b"0 null\n"


async def test_a_program_ends_in_its_own_way_when_its_group_is_asked_to() -> None:
    child = "trap 'echo over >&2; exit 4' TERM; sleep 1000 & echo runs >&2; echo; wait"
    asked = runner("sh", "-c", child, then="endGroup(child);")
    async with programs.started(*asked, within=BOUND) as process:
        out, errors = await process.communicate()
    assert (out, errors) == (b"4 null\n", b"runs\nover\n")


async def test_a_program_ends_at_its_limit() -> None:
    async with programs.started(*runner("sh", "-c", CHILD, limit="1"), within=BOUND) as process:
        await process.communicate()
