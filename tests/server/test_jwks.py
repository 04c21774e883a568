"""JWTs of IAM: signatures, claims, times, and keys that rotate."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from pubsub_server.auth import jwks
from pubsub_server.auth.jwks import FetchFailed, JwksAuthenticator, KeySet, parse_key_set
from pubsub_server.errors import ServiceError

NOW = 1_740_307_200.0
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PUBLIC = {
    "RS256": RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True),
    "ES256": ECAlgorithm.to_jwk(EC.public_key(), as_dict=True),
    "EdDSA": OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True),
}
PRIVATE: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW + 60}


def document(*algorithms: str, **more: object) -> dict[str, Any]:
    return {"keys": [{**PUBLIC[name], "kid": name, **more} for name in algorithms]}


@dataclass
class World:
    """A clock, and a JWKS that can change or fail."""

    served: object = field(default_factory=lambda: document("RS256", "ES256", "EdDSA"))
    now: float = NOW
    fetches: int = 0
    gate: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self) -> object:
        self.fetches += 1
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.served is None:
            raise FetchFailed("down")
        return self.served

    def keys(self, **more: Any) -> KeySet:
        times = {"max_age": 600, "min_interval": 10, **more}
        return KeySet(self.fetch, monotonic=lambda: self.now, **times)

    def authenticator(self, keys: KeySet | None = None, **more: Any) -> JwksAuthenticator:
        return JwksAuthenticator(keys or self.keys(), clock=lambda: self.now, **more)

    async def fetched(self, count: int) -> None:
        """Wait until this number of fetches has started, and the last result is in use."""
        async with asyncio.timeout(60):
            while self.fetches < count:
                self.begun.clear()
                await self.begun.wait()
        for _ in range(5):
            await asyncio.sleep(0)


def token(algorithm: str = "ES256", kid: str | None = "same", **claims: Any) -> str:
    headers = None if kid is None else {"kid": algorithm if kid == "same" else kid}
    payload = {k: v for k, v in {**CLAIMS, **claims}.items() if v is not None}
    return jwt.encode(payload, PRIVATE[algorithm], algorithm, headers=headers)


def claiming(claims: dict[str, Any]) -> str:
    return token("ES256", "same", **claims)


async def refusal(authenticator: JwksAuthenticator, text: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await authenticator.authenticate(text)
    return caught.value


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("word", ["", "Bearer "])
async def test_the_three_algorithms_are_taken(algorithm: str, word: str) -> None:
    identity = await World().authenticator().authenticate(word + token(algorithm))
    assert identity.user_id == "alice"
    assert identity.expires_at == (NOW + 60) * 1000


async def test_a_forged_token_is_invalid() -> None:
    stranger = jwt.encode(
        CLAIMS, ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "ES256"}
    )
    error = await refusal(World().authenticator(), stranger)
    assert error.code == "token_invalid"
    assert "signature" in error.message


async def test_alg_none_is_invalid_with_any_claims() -> None:
    for algorithm in ("none", "None", "nOnE"):
        header = {"alg": algorithm, "kid": "ES256"}
        parts = [json.dumps(part).encode() for part in (header, {**CLAIMS, "kind": "admin"})]
        text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts).decode()
        for end in (".", ".AAAA"):
            world = World()
            assert (await refusal(world.authenticator(), text + end)).code == "token_invalid"
            assert world.fetches == 0


async def test_a_public_key_is_not_accepted_as_a_shared_secret() -> None:
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"RS256"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=")
    mac = hmac.new(pem, header + b"." + body, hashlib.sha256).digest()
    text = b".".join([header, body, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()
    assert (await refusal(World().authenticator(), text)).code == "token_invalid"


async def test_the_error_for_a_development_token_names_the_server_that_accepts_it() -> None:
    error = await refusal(World().authenticator(), jwt.encode(CLAIMS, "k" * 32, "HS256"))
    assert error.code == "token_invalid"
    assert "`serve --dev` only" in error.message


async def test_the_algorithm_has_to_be_that_of_the_key() -> None:
    error = await refusal(World().authenticator(), token("RS256", kid="ES256"))
    assert error.code == "token_invalid"


async def test_an_expired_token_is_distinguished() -> None:
    authenticator = World().authenticator()
    assert (await refusal(authenticator, token(exp=NOW))).code == "token_expired"
    stranger = jwt.encode(
        {**CLAIMS, "exp": NOW - 9},
        ed25519.Ed25519PrivateKey.generate(),
        "EdDSA",
        headers={"kid": "EdDSA"},
    )
    assert (await refusal(authenticator, stranger)).code == "token_invalid"


async def test_a_token_that_is_not_valid_yet_is_invalid_beyond_the_leeway() -> None:
    authenticator = World().authenticator(leeway=5)
    for claim in ("nbf", "iat"):
        await authenticator.authenticate(claiming({claim: NOW + 5}))
        error = await refusal(authenticator, claiming({claim: NOW + 6}))
        assert error.code == "token_invalid"
        assert claim in error.message


async def test_audience_and_issuer_are_checked_where_they_are_configured() -> None:
    authenticator = World().authenticator(audiences=["pubsub", "other"], issuer="https://hanzo.id")
    good: dict[str, Any] = {"aud": ["x", "pubsub"], "iss": "https://hanzo.id"}
    await authenticator.authenticate(claiming(good))
    for wrong in ({"aud": "chat"}, {"aud": None}, {"iss": "https://evil"}, {"iss": None}):
        assert (await refusal(authenticator, claiming({**good, **wrong}))).code == "token_invalid"
    await World().authenticator().authenticate(token(aud="anything"))


@pytest.mark.parametrize("other", ["h", "https", "https://hanzo.id/", "", ["https://hanzo.id"]])
async def test_an_issuer_has_to_be_the_same_text(other: object) -> None:
    authenticator = World().authenticator(issuer="https://hanzo.id")
    claims = json.dumps({**CLAIMS, "iss": other}).encode()
    text = jwt.api_jws.encode(claims, ED, "EdDSA", headers={"kid": "EdDSA"})
    assert (await refusal(authenticator, text)).code == "token_invalid"


@pytest.mark.parametrize("critical", [["x"], ["exp"], [], "x", 1])
async def test_a_token_with_critical_extensions_is_invalid(critical: object) -> None:
    # RFC 7515, 4.1.11: critical extensions must be understood, and the list must not be empty.
    headers = {"kid": "EdDSA", "crit": critical, "x": 1}
    text = jwt.api_jws.encode(json.dumps(CLAIMS).encode(), ED, "EdDSA", headers=headers)
    assert (await refusal(World().authenticator(), text)).code == "token_invalid"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exp": None}, "`exp`"),
        ({"exp": "soon"}, "exp"),
        ({"sub": None}, "`sub`"),
        ({"kind": "root"}, "`kind`"),
        ({"nbf": "never"}, "`nbf`"),
    ],
)
async def test_a_missing_or_mistyped_claim_is_invalid(
    change: dict[str, Any], expected: str
) -> None:
    claims = {k: v for k, v in {**CLAIMS, **change}.items() if v is not None}
    text = jwt.api_jws.encode(json.dumps(claims).encode(), ED, "EdDSA", headers={"kid": "EdDSA"})
    error = await refusal(World().authenticator(), text)
    assert error.code == "token_invalid"
    assert expected in error.message


@pytest.mark.parametrize("text", ["", "x", "a.b", "a.b.c", "." * 5, "x" * 20_000, "\x00.\x00.\x00"])
async def test_a_malformed_jwt_is_invalid_and_triggers_no_fetch(text: str) -> None:
    world = World()
    assert (await refusal(world.authenticator(), text)).code == "token_invalid"
    assert world.fetches == 0


async def test_a_kid_that_is_not_text_is_invalid() -> None:
    header = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":{"a":1}}').rstrip(b"=").decode()
    text = f"{header}.e30.AAAA"
    assert (await refusal(World().authenticator(), text)).code == "token_invalid"


async def test_without_kid_the_keys_that_fit_are_tried() -> None:
    other = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    keys = [{**other, "kid": "x"}, *document("ES256")["keys"]]
    identity = await World({"keys": keys}).authenticator().authenticate(token(kid=None))
    assert identity.user_id == "alice"


async def test_a_key_that_rotates_in_is_fetched_when_a_token_names_it() -> None:
    world = World(document("RS256"))
    authenticator = world.authenticator()
    await authenticator.authenticate(token("RS256"))
    world.served = document("RS256", "ES256")
    world.now += 11
    await authenticator.authenticate(token("ES256"))
    assert world.fetches == 2


async def test_unknown_keys_cause_at_most_one_fetch_per_interval() -> None:
    world = World()
    authenticator = world.authenticator()
    for number in range(50):
        assert (await refusal(authenticator, token(kid=f"k{number}"))).code == "token_invalid"
    assert world.fetches == 1
    world.now += 10
    await refusal(authenticator, token(kid="k"))
    assert world.fetches == 2


async def test_a_known_key_verifies_immediately_even_if_iam_fails() -> None:
    world = World()
    # Only a failing test waits this long.
    authenticator = world.authenticator(world.keys(patience=60))
    long = token(exp=NOW + 9_999)
    await authenticator.authenticate(long)
    world.gate = asyncio.Event()
    for _ in range(3):
        world.now += 600
        async with asyncio.timeout(60):
            assert (await authenticator.authenticate(long)).user_id == "alice"
    await world.fetched(2)
    assert world.fetches == 2
    # An unknown key does not delay other tokens either.
    stranger = asyncio.create_task(authenticator.authenticate(token(kid="other")))
    async with asyncio.timeout(60):
        assert (await authenticator.authenticate(long)).user_id == "alice"
    assert not stranger.done()
    stranger.cancel()
    await authenticator.close()


async def test_a_removed_key_is_rejected_after_the_next_fetch() -> None:
    world = World()
    authenticator = world.authenticator()
    long = token(exp=NOW + 9_999)
    await authenticator.authenticate(long)
    world.served = document("RS256")
    await authenticator.authenticate(long)
    assert world.fetches == 1
    world.now += 600
    await authenticator.authenticate(long)
    await world.fetched(2)
    assert (await refusal(authenticator, long)).code == "token_invalid"


async def test_keys_are_fetched_at_the_start_and_every_max_age_without_any_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks, "SHORTEST_PAUSE", 0.001)
    world = World()
    keys = world.keys(max_age=0.001, min_interval=0)
    keys.start()
    await world.fetched(1)
    assert await keys.find("ES256", "ES256")
    world.served = document("RS256")
    await world.fetched(world.fetches + 2)
    assert await keys.find("RS256", "RS256")
    assert await keys.find("ES256", "ES256") == []
    await keys.close()


async def test_failed_fetches_are_repeated_in_the_background_with_growing_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    keys = world.keys()
    waits: list[float] = []
    due: list[Any] = []

    def call_later(seconds: float, callback: Any) -> asyncio.TimerHandle:
        waits.append(seconds)
        due.append(callback)
        return asyncio.TimerHandle(0, callback, (), asyncio.get_running_loop())

    async def fetched_again() -> None:
        count = world.fetches
        world.now += waits[-1]
        due[-1]()
        await world.fetched(count + 1)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    # Without keys, no client can sign in: the waits are short.
    world.served = None
    keys.start()
    await world.fetched(1)
    for _ in range(6):
        await fetched_again()
    assert waits == [1, 2, 4, 8, 10, 10, 10]
    world.served = document("ES256")
    await fetched_again()
    assert waits[-1] == 600
    assert await keys.find("ES256", "ES256")
    # With keys, the server waits longer for IAM.
    world.served = None
    for _ in range(8):
        await fetched_again()
    assert waits[-8:] == [20, 40, 80, 160, 320, 600, 600, 600]
    world.served = document("ES256")
    await fetched_again()
    assert waits[-1] == 600
    monkeypatch.undo()
    await keys.close()


async def test_a_token_that_arrives_before_the_first_keys_is_accepted_a_second_later() -> None:
    world = World(None)
    authenticator = world.authenticator()
    error = await refusal(authenticator, token())
    assert (error.code, error.retry_after_ms) == ("unavailable", 1_000)
    world.served = document("ES256")
    world.now += 1
    assert (await authenticator.authenticate(token())).user_id == "alice"
    # The minimum interval applies from now on.
    world.now += 1
    assert (await refusal(authenticator, token(kid="other"))).code == "token_invalid"
    assert world.fetches == 2


async def test_an_unknown_key_is_unavailable_not_invalid_while_iam_does_not_answer() -> None:
    world = World(document("RS256"))
    authenticator = world.authenticator(world.keys(patience=0.01))
    await authenticator.authenticate(token("RS256"))
    world.now += 10
    world.gate = asyncio.Event()
    # The fetch hangs.
    assert (await refusal(authenticator, token("ES256"))).code == "unavailable"
    world.served = None
    world.gate.set()
    await world.fetched(2)
    # The fetch has failed, and the next one is not due.
    error = await refusal(authenticator, token("ES256"))
    assert error.code == "unavailable"
    assert error.retry_after_ms == 10_000
    world.served = document("RS256", "ES256")
    world.now += 10
    assert (await authenticator.authenticate(token("ES256"))).user_id == "alice"
    # IAM has answered without this key.
    assert (await refusal(authenticator, token(kid="other"))).code == "token_invalid"
    await authenticator.close()


async def test_an_unexpected_failure_of_a_fetch_is_logged_and_the_keys_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    authenticator = world.authenticator()
    long = token(exp=NOW + 9_999)
    await authenticator.authenticate(long)

    async def broken() -> object:
        world.fetches += 1
        world.begun.set()
        raise RuntimeError("handler is closed")

    authenticator._keys._fetch = broken
    world.now += 601
    await authenticator.authenticate(long)
    await world.fetched(2)
    assert "handler is closed" in caplog.text
    assert "the known keys stay in use" in caplog.text
    await authenticator.authenticate(long)
    await authenticator.close()


async def test_keys_stay_in_use_while_they_cannot_be_fetched() -> None:
    world = World()
    authenticator = world.authenticator()
    long = token(exp=NOW + 9_999)
    await authenticator.authenticate(long)
    world.served = None
    world.now += 601
    await authenticator.authenticate(long)
    await world.fetched(2)
    await authenticator.authenticate(long)
    assert world.fetches == 2


async def test_concurrent_requests_share_one_fetch_that_survives_a_cancelled_request() -> None:
    world = World(gate=asyncio.Event())
    authenticator = world.authenticator()
    tasks = [asyncio.create_task(authenticator.authenticate(token())) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert world.gate is not None
    world.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(getattr(result, "user_id", None) == "alice" for result in results[1:])
    assert world.fetches == 1


async def test_closing_ends_a_fetch_that_hangs() -> None:
    world = World(gate=asyncio.Event())
    authenticator = world.authenticator()
    task = asyncio.create_task(authenticator.authenticate(token()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await authenticator.close()
    with pytest.raises(ServiceError) as caught:
        await task
    assert caught.value.code == "unavailable"
    assert world.fetches == 1
    assert (await refusal(authenticator, token())).code == "unavailable"
    assert world.fetches == 1


@pytest.mark.parametrize("served", [{"keys": []}, document("RS256", alg="RS384")])
async def test_a_key_set_without_a_usable_key_is_a_warning(
    served: object, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(served=served)
    keys = world.keys()
    assert (await refusal(world.authenticator(keys), token())).code == "token_invalid"
    await keys.close()
    assert "IAM publishes no key that the server can use" in caplog.text
    assert "RS256 with 2048 bits or more, ES256 or EdDSA" in caplog.text


def test_keys_for_other_uses_weak_keys_and_secrets_are_left_out() -> None:
    weak = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    other = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True)
    found = parse_key_set(
        {
            "keys": [
                {**PUBLIC["RS256"], "kid": "enc", "use": "enc"},
                {**PUBLIC["ES256"], "kid": "enc2", "use": "enc", "key_ops": ["verify"]},
                {**PUBLIC["ES256"], "kid": "encrypt", "key_ops": ["encrypt"]},
                {**PUBLIC["ES256"], "kid": "sign", "use": "sig", "key_ops": ["sign"]},
                {**PUBLIC["EdDSA"], "kid": "nothing", "key_ops": []},
                {**PUBLIC["EdDSA"], "kid": "no list", "key_ops": {"verify": 1}},
                {**PUBLIC["EdDSA"], "kid": {"a": 1}},
                {**weak, "kid": "weak"},
                {**other, "kid": "p384"},
                {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
                {**PUBLIC["RS256"], "kid": "ps", "alg": "RS512"},
                {"kty": "EC", "kid": "broken"},
                {**PUBLIC["RS256"], "kid": "type", "kty": ["RSA"]},
                {**PUBLIC["RS256"], "kid": "algorithm", "alg": ["RS256"]},
                7,
                {**PUBLIC["ES256"], "kid": "good", "alg": "ES256"},
                {**PUBLIC["ES256"], "kid": "verify", "key_ops": ["sign", "verify"]},
            ]
        }
    )
    assert list(found) == ["good", "verify"]


@pytest.mark.parametrize("wrong", [None, [], {}, {"keys": {}}, "x"])
async def test_a_document_that_is_not_a_jwks_is_a_failed_fetch(wrong: object) -> None:
    with pytest.raises(FetchFailed):
        parse_key_set(wrong)
    assert (await refusal(World(wrong).authenticator(), token())).code == "unavailable"
