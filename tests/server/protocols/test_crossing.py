"""A message from one protocol arrives over every other; docs/protocols.md has the matrix.

`HANZO_PUBSUB_WRITE=1 pytest tests/server/protocols/test_crossing.py` writes the matrix.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from hanzoai.pubsub import PermissionDenied, PubSubClient, soc
from hanzoai.pubsub.payload_bytes import bytes_of, value_of
from pubsub_server.testing import running_server
from tests.http_client import http_client
from tests.server.protocols.peers import EventPeer, HubPeer, events, hub, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx

    from pubsub_server.testing import RunningServer

PAGE = Path(__file__).parents[3] / "docs" / "protocols.md"
BEGIN, END = "<!-- matrix: written by tests/server/protocols/test_crossing.py -->\n", "<!-- end -->"
TOPIC, SECRET = "demo.crossing", "secret.plans"
VALUES = [b'{"n":1}', b"text", b"17", b'{ "spaced": 1 }', b"\xff\x00", b""]
WRITERS = ("REST", "WebSocket", "event stream", "hub", "mesh", "signed")
READERS = ("WebSocket", "SSE", "REST history", "event stream", "hub", "mesh", "signed")
KEY, ID = b"\1" * 32, bytes(32)
OWNER = soc.owner_of(KEY)
ADDRESS = soc.topic_address(ID, OWNER).hex()
SIGNED = f"signed.{ADDRESS}"
MESH: dict[str, Any] = {"backplane": "mesh", "mesh_listen": "0"}


class Town:
    """A server with a client of every protocol, all for the same user."""

    def __init__(self, server: RunningServer, ps: PubSubClient, http: httpx.AsyncClient) -> None:
        self.server = server
        self.ps = ps
        self.http = http
        self.event_url = server.server.others["event_stream"]
        self.hub_url = server.server.others["hub"]
        self.signed_url = server.server.others["signed"]

    async def post(self, topic: str, data: bytes) -> httpx.Response:
        body = {"type": "t", "data": value_of(data)}
        return await self.http.post(f"/v1/topics/{topic}/messages", json=body)


async def town(stack: AsyncExitStack, kind: str) -> Town:
    who = {"user": "alice", "kind": kind}
    identities = {"event_stream": who, "hub": who}
    if kind == "service":
        identities["signed"] = who
    server = await stack.enter_async_context(
        running_server(
            event_stream="0",
            hub="0",
            signed=True,
            listener_identities=identities,
            publish_rate_user=1e6,
            publish_rate_service=1e6,
            **MESH,
        )
    )
    token = server.token("alice", kind="service" if kind == "service" else "user")
    ps = await stack.enter_async_context(PubSubClient(url=server.ws, token=token))
    http = await stack.enter_async_context(
        http_client(base_url=server.http, headers={"Authorization": f"Bearer {token}"})
    )
    return Town(server, ps, http)


async def neighbour(here: Town, stack: AsyncExitStack) -> PubSubClient:
    """A client of another node of the mesh."""
    address = here.server.server.others["mesh"].removeprefix("mesh://")
    node = await stack.enter_async_context(
        running_server(mesh_peer=(address,), publish_rate_service=1e6, **MESH)
    )
    return await stack.enter_async_context(
        PubSubClient(url=node.ws, token=node.service_token("alice"))
    )


async def test_every_value_goes_from_each_protocol_to_each_other() -> None:
    async with AsyncExitStack() as stack:
        here = await town(stack, "service")
        opened = await here.ps.subscribe(TOPIC)
        streaming = await stack.enter_async_context(
            PubSubClient(
                url=here.server.ws,
                rest_url=here.server.http,
                token=here.server.token("bob"),
                transport="sse",
            )
        )
        streamed = await streaming.subscribe(TOPIC)
        reader = await stack.enter_async_context(events(here.event_url, TOPIC.encode()))
        pushes = await stack.enter_async_context(hub(here.hub_url))
        await pushes.subscribe(TOPIC.encode())
        sender = await stack.enter_async_context(events(here.event_url, b"demo.sender"))
        publisher = await stack.enter_async_context(hub(here.hub_url))
        far = await neighbour(here, stack)
        distant = await (await neighbour(here, stack)).subscribe(TOPIC)
        await until(lambda: here.server.stats.subscriptions == 5)

        writers: dict[str, Callable[[bytes], Awaitable[object]]] = {
            "REST": lambda data: here.post(TOPIC, data),
            "WebSocket": lambda data: here.ps.publish(TOPIC, {"type": "t", "data": value_of(data)}),
            "event stream": lambda data: send(sender, data),
            "hub": lambda data: publisher.publish(data, TOPIC.encode()),
            "mesh": lambda data: far.publish(TOPIC, {"type": "t", "data": value_of(data)}),
        }
        cells: dict[tuple[str, str], int] = {}
        for writer, write in writers.items():
            for data in VALUES:
                await write(data)
                live = [(await anext(aiter(each))).data for each in (opened, streamed)]
                page = (await here.http.get(f"/v1/topics/{TOPIC}/history?limit=1")).json()
                got = [
                    *map(bytes_of, (*live, page["messages"][-1]["data"])),
                    (await reader.next())[1],
                    (await pushes.pushed())[1],
                    bytes_of((await anext(aiter(distant))).data),
                ]
                for name, received in zip(READERS[:-1], got, strict=True):
                    cells[writer, name] = cells.get((writer, name), 0) + (received == data)
        await signed_values(here, stack, streaming, far, cells)
        assert set(cells.values()) == {len(VALUES)}
    async with AsyncExitStack() as stack:
        denied = await denials(await town(stack, "user"), stack)
    written(matrix(cells, denied))


async def signed_values(
    here: Town,
    stack: AsyncExitStack,
    streaming: PubSubClient,
    far: PubSubClient,
    cells: dict[tuple[str, str], int],
) -> None:
    """Signed messages from and to every protocol; the receiver verifies them."""
    before = here.server.stats.subscriptions
    opened = await stack.enter_async_context(here.ps.subscribe(SIGNED))
    streamed = await stack.enter_async_context(streaming.subscribe(SIGNED))
    reader = await stack.enter_async_context(events(here.event_url, SIGNED.encode()))
    pushes = await stack.enter_async_context(hub(here.hub_url))
    await pushes.subscribe(SIGNED.encode())
    distant = await stack.enter_async_context(far.subscribe(SIGNED))
    sender = await stack.enter_async_context(events(here.event_url, b"demo.sender"))
    publisher = await stack.enter_async_context(hub(here.hub_url))
    rights = f"?gsoc-eth-address={OWNER.hex()}&gsoc-topic={ID.hex()}"
    socket = await stack.enter_async_context(connect(here.signed_url + ADDRESS + rights))
    await until(lambda: here.server.stats.subscriptions == before + 6)

    def event(frame: bytes) -> dict[str, Any]:
        return {"type": "t", "data": soc.to_data(frame, ID, OWNER)}

    def encoded(frame: bytes) -> bytes:
        return bytes_of(soc.to_data(frame, ID, OWNER))

    async def send_signed(frame: bytes) -> None:
        sender.event(SIGNED.encode(), encoded(frame))

    writers: dict[str, Callable[[bytes], Awaitable[object]]] = {
        "REST": lambda frame: here.post(SIGNED, encoded(frame)),
        "WebSocket": lambda frame: here.ps.publish(SIGNED, event(frame)),
        "event stream": send_signed,
        "hub": lambda frame: publisher.publish(encoded(frame), SIGNED.encode()),
        "mesh": lambda frame: far.publish(SIGNED, event(frame)),
        "signed": socket.send,
    }
    for writer, write in writers.items():
        for data in VALUES:
            frame = soc.sign(KEY, ID, data)
            await write(frame)
            live = [(await anext(aiter(each))).data for each in (opened, streamed, distant)]
            page = (await here.http.get(f"/v1/topics/{SIGNED}/history?limit=1")).json()
            bodies = [(await reader.next())[1], (await pushes.pushed())[1]]
            carried = [*live, page["messages"][-1]["data"], *map(value_of, bodies)]
            frames = [soc.from_data(each).frame for each in carried]
            frames.append(bytes(await socket.recv(decode=False)))
            proved = [
                soc.verify(each, ID, bytes.fromhex(ADDRESS)).payload == data for each in frames
            ]
            cells[writer, "signed"] = cells.get((writer, "signed"), 0) + all(proved)
            if writer == "signed":
                for name in READERS[:-1]:
                    cells[writer, name] = cells.get((writer, name), 0) + all(proved)


async def send(peer: EventPeer, data: bytes) -> None:
    peer.event(TOPIC.encode(), data)


async def denials(here: Town, stack: AsyncExitStack) -> tuple[dict[str, str], dict[str, str]]:
    """The answers of each protocol if the rules deny access."""
    topic = SECRET.encode()
    writing: dict[str, str] = {}
    reading: dict[str, str] = {}
    writing["REST"] = f"status {(await here.post(SECRET, b'x')).status_code}"
    reading["REST history"] = (
        f"status {(await here.http.get(f'/v1/topics/{SECRET}/history')).status_code}"
    )
    reading["SSE"] = f"status {(await here.http.get(f'/v1/subscribe?topics={SECRET}')).status_code}"
    for name, work in (
        (writing, here.ps.publish(SECRET, {"type": "t", "data": 1})),
        (reading, _subscribed(here.ps)),
    ):
        try:
            await work
        except PermissionDenied as error:
            name["WebSocket"] = f"`{error.code}`"
    async with events(here.event_url, topic) as closed:
        assert await closed.ended() == b""
        reading["event stream"] = "closed"
    sender = await stack.enter_async_context(events(here.event_url, b"demo.a"))
    sender.event(topic, b"x")
    await until(lambda: here.server.stats.denied["event_stream"] == 1)
    writing["event stream"] = "dropped, counted"
    client: HubPeer = await stack.enter_async_context(hub(here.hub_url))
    _, count = await client.subscribe(topic)
    reading["hub"] = f"count {count}"
    writing["hub"] = f"count {await client.publish(b'x', topic)}"
    assert here.server.stats.published == 0
    rights = f"?gsoc-eth-address={OWNER.hex()}&gsoc-topic={ID.hex()}"
    for table, rest in ((reading, ""), (writing, rights)):
        try:
            await stack.enter_async_context(connect(here.signed_url + ADDRESS + rest))
        except InvalidStatus as error:
            table["signed"] = f"status {error.response.status_code}"
    # A node applies its rules to its own clients: the other node has already checked its forwards.
    reading["mesh"] = writing["mesh"] = "by the other node"
    return writing, reading


async def _subscribed(ps: PubSubClient) -> None:
    await ps.subscribe(SECRET)


def matrix(cells: dict[tuple[str, str], int], denied: tuple[dict[str, str], dict[str, str]]) -> str:
    writing, reading = denied
    rows = [["published over", *(f"read over {name}" for name in READERS), "where denied"]]
    for writer in WRITERS:
        row = [f"{cells[writer, name]} of {len(VALUES)}" for name in READERS]
        rows.append([writer, *row, writing[writer]])
    rows.append(["where denied", *(reading[name] for name in READERS), ""])
    lines = ["| " + " | ".join(row).rstrip() + " |\n" for row in rows]
    return "".join([lines[0], "|" + "---|" * len(rows[0]) + "\n", *lines[1:]])


def written(table: str) -> None:
    """Compare the matrix with the page, or write it."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    shown, _, tail = rest.partition(END)
    if os.environ.get("HANZO_PUBSUB_WRITE"):
        PAGE.write_text(f"{head}{BEGIN}{table}{END}{tail}", encoding="utf-8")
    else:
        assert shown == table


def test_values_have_one_reading_each() -> None:
    readings: list[Any] = [value_of(data) for data in VALUES]
    assert readings == [{"n": 1}, "text", "17", '{ "spaced": 1 }', {"$base64": "/wA="}, ""]
