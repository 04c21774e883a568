"""Watch all agents, including future ones: `**` matches one or more segments.

    python examples/watch_agents.py        # until Ctrl-C
    python examples/watch_agents.py 10     # the next ten events

The token needs access to the agents (HIP-56, Channel Access Control); on a development server

    export HANZO_PUBSUB_TOKEN=$(hanzo-pubsub token --user ops --agent bot1)
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from hanzoai.pubsub import PubSubClient


async def main(count: int | None) -> None:
    async with PubSubClient() as ps:
        agents = ps.subscribe("agent.**.events")
        await agents
        print("watching", file=sys.stderr, flush=True)
        async for event in agents:
            print(f"{event.topic} {event.type} {event.data}", flush=True)
            if count is not None and (count := count - 1) == 0:
                break


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
