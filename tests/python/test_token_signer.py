"""Backends sign tokens that a server accepts, with its key set or in development."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.claims import CLAIMS, identity_claims
from hanzoai.pubsub.errors import AuthError, InvalidOption, PermissionDenied
from hanzoai.pubsub.testing import ThreadedServer, dev_token
from hanzoai.pubsub.tokens import TokenSigner
from pubsub_server.auth.identity import identity_from_claims

if TYPE_CHECKING:
    from collections.abc import Generator

ISSUER = "https://app.example"


def pem(key: Any, password: bytes | None = None) -> str:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return encoded.decode()


KEYS = {
    "EdDSA": pem(ed25519.Ed25519PrivateKey.generate()),
    "ES256": pem(ec.generate_private_key(ec.SECP256R1())),
    "RS256": pem(rsa.generate_private_key(65537, 2048)),
}


@contextmanager
def serving(document: dict[str, Any]) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks.json"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def acts_as(ps: PubSubClient, user: str) -> bool:
    """Whether the server identifies the client as this user, whose topics are private."""
    async with asyncio.timeout(60):
        async with await ps.subscribe(f"user.{user}.inbox"):
            pass
        with pytest.raises(PermissionDenied):
            await ps.subscribe("user.somebody-else.inbox")
    return True


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_server_accepts_a_signed_token_by_the_published_key(algorithm: str) -> None:
    signer = TokenSigner(KEYS[algorithm], key_id="k1", issuer=ISSUER, audience="pubsub")
    assert signer.algorithm == algorithm
    stranger = TokenSigner(pem(ed25519.Ed25519PrivateKey.generate()), key_id="k1", issuer=ISSUER)
    settings = {
        "dev": False,
        "behind_tls_proxy": True,
        "jwt_issuer": ISSUER,
        "jwt_audience": ["pubsub"],
    }
    with (
        serving(signer.jwks()) as url,
        ThreadedServer(iam_jwks_url=url, **settings) as server,
    ):
        token = signer.sign("alice", ttl=timedelta(minutes=5))
        async with PubSubClient(token=token.value, **server.options) as ps:
            assert await acts_as(ps, "alice")
        async with PubSubClient(token=stranger.sign("eve").value, **server.options) as ps:
            with pytest.raises(AuthError):
                await ps.connect()


def test_a_token_has_the_claims_that_were_named_and_no_empty_ones() -> None:
    signer = TokenSigner(KEYS["EdDSA"], key_id="k1", audience=["a", "b"])
    before = time.time()
    token = signer.sign("alice", ttl=60, orgs=["acme"], name="Alice", extra={"plan": "pro"})
    claims = jwt.decode(token.value, options={"verify_signature": False})
    assert jwt.get_unverified_header(token.value)["kid"] == "k1"
    assert set(claims) == {"aud", "sub", "kind", "iat", "exp", "jti", "orgs", "name", "plan"}
    assert claims["aud"] == ["a", "b"]
    assert before + 60 <= claims["exp"] <= time.time() + 60
    assert token.expires_at == claims["exp"]


def test_the_key_set_holds_public_keys_of_all_signers_alone() -> None:
    signers = [TokenSigner(text, key_id=name) for name, text in KEYS.items()]
    keys = signers[0].jwks(*signers[1:])["keys"]
    assert [(key["kid"], key["alg"], key["use"]) for key in keys] == [
        (name, name, "sig") for name in KEYS
    ]
    assert not any({"d", "p", "q", "key_ops"} & set(key) for key in keys)


def test_an_encrypted_key_needs_its_password() -> None:
    text = pem(ed25519.Ed25519PrivateKey.generate(), b"secret")
    assert TokenSigner(text, key_id="k", password="secret").algorithm == "EdDSA"
    for password in (None, "wrong"):
        with pytest.raises(InvalidOption, match="password"):
            TokenSigner(text, key_id="k", password=password)


@pytest.mark.parametrize(
    "text",
    ["", "no key", pem(ec.generate_private_key(ec.SECP384R1())), KEYS["EdDSA"][:60]],
    ids=["empty", "words", "P-384", "cut"],
)
def test_a_key_that_no_server_accepts_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        TokenSigner(text, key_id="k")
    assert caught.value.field == "private_key"
    assert not text or text not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", [None, 5, Path("pubsub-key.pem")], ids=repr)
def test_a_key_that_is_not_text_is_refused_with_what_to_pass(key: Any) -> None:
    with pytest.raises(InvalidOption, match=r"not the text of a PEM.*read_text"):
        TokenSigner(key, key_id="k")


@pytest.mark.parametrize("key_id", [None, 5])
def test_the_name_of_a_key_is_a_string(key_id: Any) -> None:
    with pytest.raises(InvalidOption, match="`key_id` is"):
        TokenSigner(KEYS["EdDSA"], key_id=key_id)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"issuer": 5}, "`issuer` is int, not a string"),
        ({"issuer": ""}, "`issuer` is empty"),
        ({"audience": 5}, "`audience` is int, not a list of strings"),
        ({"audience": [5]}, "`audience` contains int"),
        ({"audience": ""}, "`audience` is empty"),
        ({"audience": []}, "`audience` is empty"),
        ({"audience": ["a", ""]}, "`audience` is empty"),
    ],
)
def test_an_issuer_or_audience_that_no_server_accepts_is_named(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOption, match=words) as caught:
        TokenSigner(KEYS["EdDSA"], key_id="k", **arguments)
    assert caught.value.field == next(iter(arguments))
    assert f"`jwt_{caught.value.field}`" in caught.value.remedy


def test_a_token_that_clients_reject_is_refused_with_the_longest_argument() -> None:
    signer = TokenSigner(KEYS["EdDSA"], key_id="k")
    sessions = [f"session-{index}" for index in range(1_000)]
    with pytest.raises(InvalidOption, match=r"characters, more than 16,384; the longest") as caught:
        signer.sign("alice", orgs=["acme"], sessions_owned=sessions)
    assert caught.value.field == "sessions_owned"
    assert len(signer.sign("alice", sessions_owned=sessions[:600]).value) > 10_000


def test_a_claim_that_is_not_json_is_named_with_its_place() -> None:
    signer = TokenSigner(KEYS["EdDSA"], key_id="k")
    with pytest.raises(InvalidOption, match=r"`extra\.limits\[1\]` is NaN") as caught:
        signer.sign("u", extra={"limits": [1, float("nan")]})
    assert caught.value.remedy == "Send None, or a string."


def test_a_list_of_a_token_may_be_any_iterable() -> None:
    token = TokenSigner(KEYS["EdDSA"], key_id="k").sign("u", orgs=(org for org in ("a", "b")))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert jwt.decode(token.value, options={"verify_signature": False})["orgs"] == ["a", "b"]


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("user", {"user": ""}),
        ("user", {"user": "u" * 129}),
        ("ttl", {"user": "u", "ttl": 0}),
        ("ttl", {"user": "u", "ttl": float("nan")}),
        ("ttl", {"user": "u", "ttl": timedelta(days=367)}),
        ("extra", {"user": "u", "extra": {"sub": "other"}}),
        ("kind", {"user": "u", "kind": "root"}),
        ("orgs", {"user": "u", "orgs": "acme"}),
        ("sessions_owned", {"user": "u", "sessions_owned": "s1"}),
        ("sessions_shared", {"user": "u", "sessions_shared": "s1"}),
        ("agents", {"user": "u", "agents": "bot1"}),
        ("user", {"user": 42}),
        ("user", {"user": None}),
        ("ttl", {"user": "u", "ttl": None}),
        ("ttl", {"user": "u", "ttl": "900"}),
        ("orgs", {"user": "u", "orgs": None}),
        ("orgs", {"user": "u", "orgs": b"acme"}),
        ("agents", {"user": "u", "agents": [7]}),
        ("name", {"user": "u", "name": 7}),
        ("avatar_url", {"user": "u", "avatar_url": b"https://a"}),
        ("extra", {"user": "u", "extra": "plan"}),
        ("extra", {"user": "u", "extra": {"plan": object()}}),
        ("extra", {"user": "u", "extra": {"limit": float("nan")}}),
        ("extra", {"user": "u", "extra": {5: "plan"}}),
        ("bulk", {"user": "u", "bulk": "no"}),
    ],
)
def test_an_argument_out_of_range_is_named(field: str, arguments: dict[str, Any]) -> None:
    signer = TokenSigner(KEYS["EdDSA"], key_id="k")
    with pytest.raises(InvalidOption) as caught:
        signer.sign(**arguments)
    assert caught.value.field == field


def test_a_signer_does_not_show_its_key() -> None:
    signer = TokenSigner(KEYS["EdDSA"], key_id="k1")
    assert repr(signer) == "TokenSigner(key_id='k1', algorithm='EdDSA')"
    with pytest.raises(InvalidOption, match="key_id"):
        TokenSigner(KEYS["EdDSA"], key_id="")


async def test_a_development_server_accepts_a_development_token(tmp_path: Path) -> None:
    key = tmp_path / "dev.key"
    with ThreadedServer(dev_key_file=key) as server:
        token = dev_token("bob", key_file=key)
        async with PubSubClient(token=token, **server.options) as ps:
            assert await acts_as(ps, "bob")


@pytest.mark.parametrize("bulk", [False, True])
def test_a_development_token_may_publish_in_bulk(tmp_path: Path, bulk: bool) -> None:
    key = tmp_path / "dev.key"
    with ThreadedServer(dev_key_file=key) as server:
        token = dev_token("job", kind="service", bulk=bulk, key_file=key)
        url = f"{server.options['rest_url']}/v1/session"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
    assert ("bulk_rate" in answer.json()["limits"]) is bulk


def test_a_key_file_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "dev.key"
    monkeypatch.setenv("HANZO_PUBSUB_DEV_KEY_FILE", str(key))
    assert dev_token()
    key.chmod(0o644)
    with pytest.raises(InvalidOption) as caught:
        dev_token()
    assert caught.value.field == "key_file"


def test_a_signer_writes_every_claim_that_the_server_reads() -> None:
    written = identity_claims(
        "alice",
        "user",
        name="Alice",
        avatar_url="https://a.example/x.png",
        orgs=["acme"],
        sessions_owned=["s"],
        sessions_shared=["t"],
        agents=["bot"],
        bulk=True,
    )
    assert {*written, "jti"} == set(CLAIMS.values())
    identity = identity_from_claims({**written, "jti": "k", "exp": 1e9})
    assert (identity.user_id, set(identity.sessions_shared), identity.bulk) == (
        "alice",
        {"t"},
        True,
    )
