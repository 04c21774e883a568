"""Short-lived tokens: the client requests a new one before the old one expires.

The arguments are the command that prints a token:

    python examples/token_rotation.py hanzo-pubsub token --user me --ttl 90
"""

from __future__ import annotations

import asyncio
import sys

from hanzoai.pubsub import AuthRefused, PubSubClient, TokenContext

ROTATIONS = 2
rotated = asyncio.Semaphore(0)


async def get_token(context: TokenContext) -> str:
    command = await asyncio.create_subprocess_exec(*sys.argv[1:], stdout=asyncio.subprocess.PIPE)
    token, _ = await command.communicate()
    if command.returncode:
        raise AuthRefused("The command printed no token.")  # stops the client permanently
    print(f"another token, because: {context.reason}", flush=True)
    if context.reason == "expiring":
        rotated.release()
    return token.decode().strip()


async def main() -> None:
    async with PubSubClient(get_token=get_token) as ps, ps.subscribe("demo.rotation"):
        for _ in range(ROTATIONS):
            await rotated.acquire()
        await ps.publish("demo.rotation", {"type": "note", "data": "still connected"})
        print(f"{ps.state} after {ROTATIONS} rotations")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python token_rotation.py COMMAND [ARGUMENT ...]")
    asyncio.run(main())
