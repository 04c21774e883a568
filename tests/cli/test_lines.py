"""How commands read standard input."""

from __future__ import annotations

import asyncio
import os

from hanzoai.pubsub.cli.lines import read_chunks

PIECE = b"x" * 65_536


async def test_a_program_that_pipes_text_waits_for_the_command_that_publishes_it() -> None:
    there, here = os.pipe()
    os.set_blocking(here, False)
    written = os.write(here, PIECE[:1_000])
    with os.fdopen(there, "rb") as source:
        chunks = read_chunks(source)
        await anext(chunks)
        for _ in range(2_000):
            try:
                written += os.write(here, PIECE)
            except BlockingIOError:
                await asyncio.sleep(0)
        os.close(here)
        rest = [chunk async for chunk in chunks]
    assert written < 1_000_000
    assert 1_000 + sum(map(len, rest)) == written
