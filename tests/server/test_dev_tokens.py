"""Development tokens and the key that signs them."""

from __future__ import annotations

import base64
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import jwt
import pytest

from pubsub_server.auth.dev_tokens import (
    ISSUER,
    DevTokens,
    KeyFileError,
    default_key_file,
    load_key,
    mint,
)
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 64
OTHER = b"o" * 64


async def refusal(token: str, now: float = 1000.0) -> str:
    with pytest.raises(ServiceError) as caught:
        await DevTokens(KEY, clock=lambda: now).authenticate(token)
    return caught.value.code


async def test_a_token_names_what_it_was_made_for() -> None:
    token = mint(
        KEY,
        "alice",
        kind="admin",
        orgs=["acme"],
        ttl=60,
        name="Alice",
        avatar_url="https://a.example/a.png",
        sessions_owned=["s1"],
        sessions_shared=["s2"],
        agents=["bot1"],
        now=1000,
    )
    identity = await DevTokens(KEY, clock=lambda: 1000).authenticate(f"Bearer {token}")
    assert (identity.user_id, identity.kind, identity.name) == ("alice", "admin", "Alice")
    assert identity.orgs == {"acme"}
    assert identity.sessions_owned == {"s1"}
    assert identity.sessions_shared == {"s2"}
    assert identity.agents == {"bot1"}
    assert identity.expires_at == 1_060_000
    assert identity.key_id


async def test_a_token_ends_to_the_millisecond() -> None:
    token = mint(KEY, "alice", ttl=0.5, now=1000)
    identity = await DevTokens(KEY, clock=lambda: 1000.499).authenticate(token)
    assert identity.expires_at == 1_000_500
    assert await refusal(token, 1000.5) == "token_expired"


async def test_an_expired_token_is_distinguished_from_an_invalid_one() -> None:
    assert await refusal(mint(KEY, "alice", ttl=-1, now=1000)) == "token_expired"
    assert await refusal(mint(OTHER, "alice", ttl=-1, now=1000)) == "token_invalid"


@pytest.mark.parametrize("key", [KEY, OTHER])
async def test_a_refusal_names_the_command_that_prints_a_token(key: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        await DevTokens(KEY, clock=lambda: 1000).authenticate(mint(key, "alice", ttl=-1, now=1000))
    assert "`hanzo-pubsub token --user NAME`" in (caught.value.remedy or "")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "..", "\x00", "ü.ü.ü", "Bearer"])
async def test_a_malformed_token_is_invalid(token: str) -> None:
    assert await refusal(token) == "token_invalid"


async def test_an_unsigned_token_is_invalid() -> None:
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    claims = {"iss": ISSUER, "sub": "alice", "exp": 2000, "kind": "admin"}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    assert await refusal(f"{head}.{body}.") == "token_invalid"


async def test_a_token_of_another_issuer_or_without_end_is_invalid() -> None:
    claims: dict[str, object] = {"iss": ISSUER, "sub": "alice", "exp": 2000}
    for change in ({"iss": "elsewhere"}, {"exp": None}, {"sub": 7}):
        wrong = {k: v for k, v in {**claims, **change}.items() if v is not None}
        assert await refusal(jwt.encode(wrong, KEY, "HS256")) == "token_invalid"
    assert await refusal(jwt.encode(claims, KEY, "HS512")) == "token_invalid"


def test_the_key_is_made_on_first_use_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = default_key_file()
    key = load_key(None)
    assert len(key) == 64
    assert load_key(file) == load_key(None) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["dev.key"]


def test_programs_that_start_together_get_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(load_key, [tmp_path / "dev.key"] * 32))
    assert len(keys) == 1


def test_a_key_that_others_may_read_or_that_is_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dev.key"
    file.write_text("ab", encoding="ascii")
    file.chmod(0o600)
    with pytest.raises(KeyFileError, match="too short"):
        load_key(file)
    file.write_text("ab" * 32, encoding="ascii")
    file.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_key(file)


def test_a_folder_for_the_key_is_named_as_such(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(KeyFileError, match=r"cannot be read: Is a directory$"):
        load_key(tmp_path)


def test_no_folder_is_made_for_a_key_file_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="its folder does not exist"):
        load_key(tmp_path / "mistyped" / "dev.key")
    assert not (tmp_path / "mistyped").exists()


def test_a_key_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(KeyFileError, match="cannot be"):
        load_key(tmp_path / "file" / "dev.key")


def test_the_key_lies_in_the_state_directory() -> None:
    assert str(default_key_file({"XDG_STATE_HOME": "/s"})) == "/s/hanzo-pubsub/dev.key"
    for environ in ({}, {"XDG_STATE_HOME": "relative"}):
        assert default_key_file(environ).parts[-4:] == (
            ".local",
            "state",
            "hanzo-pubsub",
            "dev.key",
        )
