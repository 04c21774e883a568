"""Forged tokens and forged webhooks against several nodes at once."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from hanzoai.pubsub import webhooks
from pubsub_server.observe.webhooks import signature
from pubsub_server.settings.entries import signing_key
from tests.cluster.fleet import RefusedError, nodes, peer
from tests.cluster.test_attacks import BOUND, MANY, resident, rest, store
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

__all__ = ["store"]

SECRET: Final = "whsec_" + base64.b64encode(b"a secret of some length").decode()
FORGER: Final = ec.generate_private_key(ec.SECP256R1())


def token(kid: str, key: ec.EllipticCurvePrivateKey, user: str = "ann") -> str:
    claims = {"sub": user, "kind": "service", "exp": int(time.time()) + 3600}
    return jwt.encode(claims, key, algorithm="ES256", headers={"kid": kid})


@dataclass
class Keys:
    """A key set that counts its requests, and delays them while its gate is shut."""

    served: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict)
    url: str = ""
    asked: int = 0
    waiting: int = 0
    most: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, kid: str) -> str:
        """Add a key, and return a token that it has signed."""
        key = self.served[kid] = ec.generate_private_key(ec.SECP256R1())
        return token(kid, key)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        keys = [
            {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": "ES256"}
            for kid, key in self.served.items()
        ]
        return web.json_response({"keys": keys})


@asynccontextmanager
async def served(handle: Callable[[web.Request], Any], method: str = "GET") -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route(method, "/here", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/here"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def trusting(
    store: Store, **more: object
) -> AsyncGenerator[tuple[Keys, str, list[RunningServer]]]:
    """Run a key set and two nodes that trust it; yield them with a token of the first key."""
    keys = Keys()
    keys.gate.set()
    good = keys.add("good")
    async with asyncio.timeout(BOUND), served(keys.handle) as url:
        given: dict[str, Any] = {
            "iam_jwks_url": url,
            "behind_tls_proxy": True,
            "jwks_timeout": 60_000,
            **more,
        }
        async with nodes(store, **given) as fleet:
            try:
                yield keys, good, fleet
            finally:
                keys.gate.set()


async def flood(node: RunningServer, name: str, count: int = MANY) -> set[int]:
    """Send tokens with this number of unknown key ids, and return the status codes."""
    async with httpx.AsyncClient(base_url=node.http, timeout=BOUND) as http:

        async def show(some: range) -> set[int]:
            codes: set[int] = set()
            for number in some:
                headers = {"Authorization": f"Bearer {token(f'{name}{number}', FORGER)}"}
                codes.add((await http.get("/v1/session", headers=headers)).status_code)
            return codes

        lanes = 10
        found = await asyncio.gather(*(show(range(n, count, lanes)) for n in range(lanes)))
        return set().union(*found)


async def test_a_flood_of_unknown_key_ids_fetches_the_keys_once_per_node_and_keeps_nothing(
    store: Store,
) -> None:
    async with trusting(store, jwks_min_interval=3_600_000, token_memory=60_000) as trust:
        keys, good, fleet = trust
        for node in fleet:
            async with peer(node, good):
                pass
        gc.collect()
        before = resident()
        answers = await asyncio.gather(*(flood(node, "nobody") for node in fleet))
        assert answers == [{401}, {401}]
        assert keys.asked == len(fleet)
        for node in fleet:
            # A socket behaves the same.
            with pytest.raises(RefusedError):
                async with peer(node, token("nobody", FORGER)):
                    pass
            # A known key id does not make the signature valid.
            async with rest(node, token("good", FORGER)) as http:
                assert (await http.get("/v1/session")).status_code == 401
            async with peer(node, good) as ann:
                await ann.subscribe("demo.x")
            assert sum(node.stats.tokens_refused.values()) == MANY + 2
        assert keys.asked == len(fleet)
        gc.collect()
        assert resident() - before < 30_000_000


async def test_known_users_get_in_while_each_node_fetches_the_keys_once(
    store: Store,
) -> None:
    async with trusting(store, jwks_min_interval=0) as (keys, good, fleet):
        for node in fleet:
            async with peer(node, good):
                pass
        keys.gate.clear()
        keys.most = 0
        floods = [asyncio.create_task(flood(node, "nobody", 50)) for node in fleet]
        await until(lambda: keys.waiting, len(fleet))
        new = keys.add("new")
        for node in fleet:
            async with peer(node, good) as ann:
                await ann.subscribe("demo.x")
        assert keys.most == len(fleet)
        keys.gate.set()
        # 503 if the keys did not arrive in time.
        answers = await asyncio.gather(*floods)
        assert all(answer <= {401, 503} for answer in answers)
        # Each node has at most one request for the keys in flight.
        assert keys.most <= len(fleet)
        for node in fleet:
            async with peer(node, new):
                pass


@dataclass
class Receiver:
    """Handles webhooks like the example in docs/operate/webhooks.md."""

    secret: str = SECRET
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    done: list[Any] = field(default_factory=list)
    seen: webhooks.SeenWebhooks = field(default_factory=webhooks.SeenWebhooks)

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        self.got.append((headers, body))
        return web.Response(status=self.take(headers, body))

    def take(self, headers: Mapping[str, str], body: bytes) -> int:
        try:
            delivery = webhooks.verify(body, headers, self.secret)
        except webhooks.InvalidWebhook as error:
            return error.status
        if self.seen.is_new(delivery.id):
            self.done += [event.data["data"] for event in delivery.events]
        return 204


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


def signed(secret: str, stamp: float, body: bytes, identifier: str = "wh_new") -> dict[str, str]:
    output = str(int(stamp))
    return {
        "webhook-id": identifier,
        "webhook-timestamp": output,
        "webhook-signature": signature(signing_key(secret), identifier, output, body),
    }


async def test_a_receiver_takes_what_either_node_sends_once_and_nothing_forged(
    store: Store, receiver: Receiver
) -> None:
    async with asyncio.timeout(BOUND), served(receiver.handle, "POST") as url:
        hook = {"url": url, "secret": SECRET, "topics": ["demo.**"]}
        async with nodes(store, webhooks=[hook]) as fleet:
            for number in range(10):
                async with peer(fleet[number % 2], fleet[number % 2].service_token()) as ann:
                    frame = {"type": "publish", "topic": "demo.x", "data": number, "ref": "1"}
                    await ann.send(frame)
                    await ann.until("published")
            await until(lambda: len(receiver.done), 10)
    # Only the node that accepted a message posts it.
    assert sorted(receiver.done) == list(range(10))
    headers, body = receiver.got[0]
    # A repeated delivery, from the node or an eavesdropper, is accepted but not processed again.
    assert receiver.take(headers, body) == 204
    assert len(receiver.done) == 10
    now = time.time()
    forged = [
        (headers, body.replace(b'"demo.x"', b'"demo.y"')),
        (headers, body + b" "),
        ({**headers, "webhook-id": "wh_another"}, body),
        ({**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}, body),
        (signed("another secret, as long", now, body), body),
        (signed("", now, body), body),
        (signed(SECRET, now - 400, body), body),
        (signed(SECRET, now + 400, body), body),
        ({**headers, "webhook-signature": "v1,"}, body),
        ({**headers, "webhook-signature": ""}, body),
        ({**headers, "webhook-signature": "v1,ünsigned"}, body),
        ({**headers, "webhook-signature": "v1,\udcff"}, body),
        ({**headers, "webhook-id": "\udcff"}, body),
        ({**headers, "webhook-timestamp": "\N{SUPERSCRIPT TWO}"}, body),
        ({**headers, "webhook-timestamp": "soon"}, body),
        *(({k: v for k, v in headers.items() if k != gone}, body) for gone in signed("", 0, b"")),
        ({}, body),
    ]
    assert [receiver.take(*each) for each in forged] == [401] * len(forged)
    assert len(receiver.done) == 10
    assert receiver.take(signed(SECRET, now, body), body) == 204


async def test_an_id_is_known_as_long_as_its_request_could_be_taken(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    tolerance = int(webhooks.TOLERANCE)
    event = {"event": "publish", "topic": "demo.x", "time": 0, "data": {"data": 1}}
    body = json.dumps({"events": [event]}).encode()
    # The clock is ahead by the maximum that is accepted.
    received = signed(SECRET, began + tolerance - 1, body)
    for later in range(0, 3 * tolerance, 20):
        monkeypatch.setattr(time, "time", lambda later=later: began + later)
        receiver.take(received, body)
        receiver.take(
            signed(SECRET, began + later, b'{"events": []}', f"wh_{later}"), b'{"events": []}'
        )
    assert receiver.done == [1]
    assert len(receiver.seen) <= 2 * tolerance / 20 + 1


async def test_a_node_ignores_a_webhook_that_is_posted_to_it(store: Store) -> None:
    body = json.dumps({"events": [{"event": "publish", "topic": "demo.x", "data": {"data": 1}}]})
    hook = {"url": "http://127.0.0.1:1/here", "secret": SECRET, "topics": ["nothing"]}
    async with asyncio.timeout(BOUND), nodes(store, webhooks=[hook]) as fleet:
        for node in fleet:
            async with httpx.AsyncClient(base_url=node.http, timeout=BOUND) as http:
                for path in ("/", "/here", "/webhook", "/webhooks", "/v1/webhooks", "/v1/publish"):
                    headers = signed(SECRET, time.time(), body.encode())
                    answer = await http.post(path, content=body, headers=headers)
                    # The sender has no token, and a signature does not replace one.
                    assert answer.status_code in {401, 404, 405}, path
        assert [node.stats.published for node in fleet] == [0, 0]
