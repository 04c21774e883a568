"""HIP-56's presence timeout: a client is silent for thirty seconds; the SDK prevents that.

Uses the server's hub in virtual time, with the defaults of both sides. The server's pings are
disabled, so that no WebSocket library answers for the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.testing import MemoryServer

if TYPE_CHECKING:
    from hanzoai.pubsub import PresenceChange

TOPIC = "chat.session.abc"
NEVER = 86_400
"""Presence timeout in seconds."""


@pytest.mark.statement("H-083", "H-086")
async def test_a_client_that_is_silent_for_thirty_seconds_is_disconnected_and_leaves() -> None:
    changes: list[tuple[str, str]] = []

    def note(change: PresenceChange) -> None:
        if change.member is not None:
            changes.append((change.change, change.member.user_id))

    async with MemoryServer(server_ping_interval=NEVER * 1000) as server:
        watcher = server.client(server.token("watcher"))
        silent = server.client(server.token("silent"), ping_interval=NEVER)
        async with (
            watcher.subscribe(TOPIC, on_presence=note),
            silent.subscribe(TOPIC, presence=True),
        ):
            await server.clock.advance(29.5)
            assert changes == [("join", "silent")]
            await server.clock.advance(1)
            assert changes[:2] == [("join", "silent"), ("leave", "silent")]
            assert server.stats.refused == {"idle_timeout": 1}


@pytest.mark.statement("H-086")
async def test_the_sdk_pings_by_itself_so_that_an_idle_program_stays_present() -> None:
    async with MemoryServer(server_ping_interval=NEVER * 1000) as server:
        idle = server.client(server.token("idle"))
        async with idle.subscribe(TOPIC, presence=True):
            await server.clock.advance(600)
            assert server.stats.connections_total == 1
            assert [member.user_id for member in await idle.presence(TOPIC)] == ["idle"]
            assert {frame["type"] for frame in server.received} == {"auth", "subscribe", "ping"}
