"""Continue where the last run of the program ended: store the positions, and pass them as `after`.

python examples/resume_after_restart.py positions.json 5
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hanzoai.pubsub import Gap, Message, PubSubClient

TOPIC = "demo.resume"


async def main(file: Path, count: int) -> None:
    after = await asyncio.to_thread(read, file)
    async with PubSubClient() as ps:
        # Without positions, start at the oldest messages of the history.
        orders = ps.subscribe(TOPIC, after=after) if after else ps.subscribe(TOPIC, history=100)
        async for event in orders.events():
            if isinstance(event, Gap):
                # The server no longer retains these: load them from your own storage.
                print(f"missed {event.missed} orders: {event.reason}", file=sys.stderr, flush=True)
            elif isinstance(event, Message):
                print(event.data["number"], flush=True)
                # Save it after processing: a crash then repeats one order, but never skips one.
                await asyncio.to_thread(file.write_text, json.dumps(dict(orders.positions)))
                if (count := count - 1) == 0:
                    break


def read(file: Path) -> dict[str, int]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python resume_after_restart.py FILE COUNT")
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
