from __future__ import annotations

from typing import Any

import orjson

from tests.server.websocket_rig import client, raw, serving


async def test_a_slow_consumer_is_cut_the_others_continue_and_it_catches_up() -> None:
    async with serving(send_queue_bytes=300_000) as server:
        async with raw(server) as slow, client(server, "quick") as quick:
            slow.writer.get_extra_info("socket").setsockopt(1, 8, 4096)
            slow.frame(b'{"type":"auth","token":"slow"}')
            slow.frame(b'{"type":"subscribe","topics":["a"],"presence":false}')
            await slow.receive()
            start = orjson.loads((await slow.receive())[1])["timestamp"]
            await quick.ask("subscribe", topics=["a"], presence=False)
            transport: Any = slow.writer.transport
            transport.pause_reading()
            for number in range(100):
                await quick.say("publish", topic="a", data=[number, "x" * 100_000])
                assert (await quick.receive())["message"]["data"][0] == number
            assert server.hub.stats.slow_consumers == 1
            await server.until_gone(rest=1)
        async with client(server, "slow") as again:
            await again.say("subscribe", topics=["a"], since=start, ref="1", presence=False)
            got: list[int] = []
            more = True
            while more:
                frame = await again.receive()
                got += [message["data"][0] for message in frame["history"]]
                more = frame.get("more", False)
            assert got == list(range(100))


async def test_a_large_replay_to_a_slow_reader_is_no_slow_consumer() -> None:
    async with serving(send_queue_bytes=50_000) as server, client(server, "bot") as bot:
        for number in range(100):
            await bot.ask("publish", ref="1", topic="a", data=[number, "x" * 100_000])
        async with client(server, "late", max_queue=1) as late:
            await late.say("subscribe", topics=["a"], history=100, ref="1", presence=False)
            await late.say("ping", ref="after")
            got: list[int] = []
            while (frame := await late.receive())["type"] == "subscribed":
                got += [message["data"][0] for message in frame["history"]]
            assert got == list(range(100))
            assert frame["ref"] == "after"
        assert server.hub.stats.slow_consumers == 0
