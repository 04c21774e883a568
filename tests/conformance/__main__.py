"""Runs scenarios in both languages: `python -m tests.conformance [WORDS] [--write-table]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance import table
from tests.conformance.peer_process import LANGUAGES, Language, Peers, compiled
from tests.conformance.runner import outcome
from tests.conformance.scenarios import Scenario, known_failures, load

if TYPE_CHECKING:
    from collections.abc import Sequence


async def run_all(
    scenarios: Sequence[Scenario], languages: Sequence[Language]
) -> tuple[dict[table.Cell, bool], list[str]]:
    """Run the scenarios of both languages concurrently; return the passed ones and all problems."""
    known = known_failures()
    passed: dict[table.Cell, bool] = {}
    problems: list[str] = []

    async def run(language: Language, peers: Peers) -> None:
        for scenario in scenarios:
            cell = (scenario.name, language)
            with tempfile.TemporaryDirectory() as folder:
                peer = await peers.get(language)
                came = await outcome(scenario, peer, Path(folder), known.get(cell))
            passed[cell] = came.passed
            if came.problem is not None:
                problems.append(came.problem)
                print(came.problem, end="\n\n", flush=True)

    with compiled() as built:
        async with Peers(built) as peers:
            await asyncio.gather(*(run(language, peers) for language in languages))
    return passed, problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("words", nargs="*", help="only scenarios with these in group or name")
    parser.add_argument("--only", choices=LANGUAGES, help="only one language")
    parser.add_argument("--write-table", action="store_true", help="write docs/conformance.md")
    args = parser.parse_args()
    if args.write_table and (args.words or args.only):
        parser.error("the table is that of a full run")
    words: list[str] = [word.lower() for word in args.words]
    chosen = [
        one for one in load() if all(word in f"{one.group} {one.name}".lower() for word in words)
    ]
    if not chosen:
        parser.error(f"no scenario has {' and '.join(args.words)} in its group or name")
    passed, problems = asyncio.run(run_all(chosen, [args.only] if args.only else LANGUAGES))
    print(f"{sum(passed.values())} of {len(passed)} passed, {len(problems)} problems")
    if not problems and args.write_table:
        table.write(chosen, passed)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
