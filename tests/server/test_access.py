"""Authentication from the settings: keys that a running server fetches over HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import jwt
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from hanzoai.pubsub import AuthError, PubSubClient
from pubsub_server.access import setup as access
from pubsub_server.access.setup import StartError
from pubsub_server.auth.jwks import FetchFailed
from pubsub_server.errors import ServiceError
from pubsub_server.settings.sources import load
from pubsub_server.testing import RunningServer, running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclass
class Iam:
    """Publishes keys, and signs tokens with them."""

    url: str = ""
    keys: dict[str, ec.EllipticCurvePrivateKey] = field(
        default_factory=lambda: {"k1": ec.generate_private_key(ec.SECP256R1())}
    )
    answer: web.Response | None = None
    gate: asyncio.Event | None = None
    asked: int = 0
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: set[str] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.was_asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.answer is not None:
            answer, self.answer = self.answer, None
            return answer
        published = [
            {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}
            for kid, key in self.keys.items()
            if kid not in self.withdrawn
        ]
        return web.Response(text=json.dumps({"keys": published}), content_type="application/json")

    def token(self, kid: str = "k1", **claims: Any) -> str:
        payload = {"sub": "alice", "exp": time.time() + 60, **claims}
        return jwt.encode(payload, self.keys[kid], "ES256", headers={"kid": kid})


@pytest.fixture
async def iam() -> AsyncIterator[Iam]:
    iam = Iam()
    app = web.Application()
    app.router.add_get("/.well-known/jwks.json", iam.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    iam.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield iam
    if iam.gate is not None:
        iam.gate.set()
    await runner.cleanup()


async def status(server: RunningServer, token: str) -> int:
    async with http_client(base_url=server.http) as client:
        answer = await client.get("/v1/session", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code


async def test_keys_rotate_while_the_server_runs(iam: Iam) -> None:
    async with running_server(
        iam_url=iam.url, behind_tls_proxy=True, jwks_min_interval=0, jwks_max_age=1, token_memory=0
    ) as server:
        old = iam.token()
        assert await status(server, old) == 200
        iam.keys["k2"] = ec.generate_private_key(ec.SECP256R1())
        assert await status(server, iam.token("k2")) == 200
        del iam.keys["k1"]
        async with asyncio.timeout(60):
            while await status(server, old) != 401:
                pass
        assert await status(server, iam.token("k2")) == 200


async def test_a_withdrawn_key_is_noticed_after_the_tokens_it_signed_are_forgotten(
    iam: Iam,
) -> None:
    async with running_server(
        iam_url=iam.url,
        behind_tls_proxy=True,
        jwks_min_interval=0,
        jwks_max_age=1,
        token_memory=600_000,
    ) as server:
        old = iam.token()
        assert await status(server, old) == 200
        iam.withdrawn.add("k1")
        number = 0
        async with asyncio.timeout(60):
            while await status(server, iam.token(jti=str(number))) != 401:
                number += 1
        assert await status(server, old) == 200


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500),
        web.Response(status=404),
        web.Response(text="no JSON"),
        web.Response(text='{"keys": 7}'),
        web.Response(body=b"[" + b" " * access.JWKS_MAX_BYTES + b"]"),
        web.Response(status=302, headers={"Location": "/elsewhere"}),
    ],
    ids=["500", "404", "text", "no list", "huge", "redirect to nothing"],
)
async def test_without_keys_the_server_is_unavailable_and_recovers(
    iam: Iam, answer: web.Response
) -> None:
    iam.answer = answer
    async with running_server(
        iam_url=iam.url, behind_tls_proxy=True, jwks_min_interval=0
    ) as server:
        assert await status(server, iam.token()) == 503
        assert await status(server, iam.token()) == 200


async def test_keys_that_come_over_an_unencrypted_redirect_are_not_used(
    iam: Iam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, both = trustme.CA(), tmp_path / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(both)
    serving, trust = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    serving.load_cert_chain(both)
    authority.configure_trust(trust)

    async def forward(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"{iam.url}/.well-known/jwks.json")

    app = web.Application()
    app.router.add_get("/", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving).start()
    session = aiohttp.ClientSession

    def trusting(**options: Any) -> aiohttp.ClientSession:
        return session(connector=aiohttp.TCPConnector(ssl=trust), **options)

    monkeypatch.setattr(aiohttp, "ClientSession", trusting)
    try:
        url = f"https://user:hushhush@127.0.0.1:{runner.addresses[0][1]}/?key=hushhush"
        for same in (url, url.replace("https:", "HTTPS:")):
            with pytest.raises(FetchFailed, match="unencrypted") as caught:
                await access._Fetcher(same, 60)()
            assert "hushhush" not in str(caught.value)
        assert await access._Fetcher(f"{iam.url}/.well-known/jwks.json", 60)()
    finally:
        await runner.cleanup()


async def test_a_failed_fetch_names_the_address_without_its_secrets(iam: Iam) -> None:
    url = iam.url.replace("//", "//user:hushhush@") + "/.well-known/jwks.json?key=hushhush"
    for answer in (web.Response(status=500), web.Response(text="no JSON")):
        iam.answer = answer
        with pytest.raises(FetchFailed, match="jwks") as caught:
            await access._Fetcher(url, 60)()
        assert "hushhush" not in str(caught.value)


async def test_logins_with_a_known_key_do_not_wait_for_an_iam_that_hangs(iam: Iam) -> None:
    async with running_server(
        iam_url=iam.url,
        behind_tls_proxy=True,
        jwks_min_interval=0,
        jwks_max_age=1,
        jwks_timeout=60_000,
        token_memory=0,
    ) as server:
        assert await status(server, iam.token()) == 200
        iam.gate = asyncio.Event()
        asked = iam.asked
        async with asyncio.timeout(60):
            while iam.asked == asked:
                assert await status(server, iam.token()) == 200
        answers = await asyncio.gather(*(status(server, iam.token()) for _ in range(20)))
        assert answers == [200] * 20
        assert iam.asked == asked + 1


async def test_the_keys_are_there_before_the_first_login(iam: Iam) -> None:
    patient = {"auth_deadline": 60_000, "jwks_timeout": 60_000}
    async with running_server(iam_url=iam.url, behind_tls_proxy=True, **patient) as server:
        async with asyncio.timeout(60):
            await iam.was_asked.wait()
        assert await status(server, iam.token()) == 200
        assert iam.asked == 1


async def test_keys_that_do_not_come_in_time_are_not_waited_for(iam: Iam) -> None:
    iam.gate = asyncio.Event()
    async with running_server(
        iam_jwks_url=f"{iam.url}/.well-known/jwks.json", behind_tls_proxy=True, jwks_timeout=50
    ) as server:
        assert await status(server, iam.token()) == 503


async def test_a_server_of_keys_that_is_not_there_is_unavailable() -> None:
    settings = load({"iam_jwks_url": "http://127.0.0.1:1/jwks", "behind_tls_proxy": True})
    authenticator, jwks, _ = access.build_authenticator(settings, None)
    with pytest.raises(ServiceError) as caught:
        await authenticator.authenticate(Iam().token())
    assert caught.value.code == "unavailable"
    assert jwks is not None
    await jwks.close()


async def test_a_development_server_also_accepts_tokens_of_iam(iam: Iam) -> None:
    async with running_server(dev=True, iam_url=iam.url, jwt_issuer="https://iam") as server:
        assert await status(server, iam.token(iss="https://iam")) == 200
        assert await status(server, server.token("alice")) == 200
        assert await status(server, iam.token(iss="https://other")) == 401
        assert await status(server, iam.token()[:-4]) == 401


async def test_a_development_server_without_iam_names_the_setting_for_tokens_of_iam(
    iam: Iam,
) -> None:
    async with running_server() as server, http_client(base_url=server.http) as client:
        headers = {"Authorization": f"Bearer {iam.token()}"}
        answer = await client.get("/v1/session", headers=headers)
        assert answer.status_code == 401
        assert "--iam-jwks-url" in answer.json()["remedy"]
        with pytest.raises(AuthError, match="--iam-jwks-url"):
            async with PubSubClient(server.ws, iam.token()) as ps:
                await ps.connect()


async def test_claims_may_have_other_names(iam: Iam) -> None:
    rename = {"jwt_claims": {"orgs": "owner", "user_id": "id"}}
    async with (
        running_server(iam_url=iam.url, behind_tls_proxy=True, **rename) as server,
        http_client(base_url=server.http) as client,
    ):
        headers = {"Authorization": iam.token(id="bob", owner="acme")}
        assert (await client.get("/v1/session", headers=headers)).json()["user_id"] == "bob"
        answer = await client.get("/v1/access?topic=org.acme.x", headers=headers)
        assert answer.json()["subscribe"] is True


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"dev": True, "host": "0.0.0.0"}, "loopback"),
        ({}, "no client"),
        ({"iam_url": "https://hanzo.id"}, "plaintext"),
        ({"api_keys_file": "k.yaml"}, "plaintext"),
    ],
)
def test_what_must_not_be_started_is_refused(flags: dict[str, object], expected: str) -> None:
    with pytest.raises(StartError, match=expected):
        access.check(load(flags))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_development_is_for_loopback(host: str) -> None:
    access.check(load({"dev": True, "host": host}))


def test_in_production_plaintext_needs_a_proxy_that_ends_tls() -> None:
    access.check(load({"iam_url": "https://hanzo.id", "behind_tls_proxy": True}))
    access.check(load({"iam_url": "https://hanzo.id", "tls_cert": "c", "tls_key": "k"}))
