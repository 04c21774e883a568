"""Hashed API keys from a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import AuthError, PubSubClient
from pubsub_server.auth import api_keys
from pubsub_server.auth.api_keys import ApiKeys, ApiKeysError, generate, hash_key, load
from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError
from pubsub_server.server import Server
from pubsub_server.settings.config import Settings
from pubsub_server.testing import running_server
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60
KEY = "hpk_" + "k" * 43
DIGEST = hash_key(KEY)


def write(file: Path, *entries: dict[str, object]) -> Path:
    file.write_text(json.dumps({"keys": entries}), encoding="utf-8")
    return file


def replace(file: Path, text: str | None) -> None:
    file.unlink()
    if text is not None:
        file.write_text(text, encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.json", {"id": "k1", "sha256": DIGEST, "user": "gateway"})


def test_a_new_key_is_long_random_and_recognizable() -> None:
    other, digest = generate()
    assert other != KEY
    assert other.startswith("hpk_")
    assert len(other) == 47
    assert digest == hash_key(other)


@pytest.mark.parametrize("word", ["", "Bearer "])
async def test_a_key_has_the_identity_of_its_entry(tmp_path: Path, word: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(
        f"""
keys:
  - id: gateway-1
    sha256: {DIGEST.upper()}
    user: gateway
    kind: service
    name: Gateway
    orgs: [acme]
    sessions_owned: [s1]
    sessions_shared: [s2]
    agents: [bot1]
    avatar_url: https://a.example/a.png
    expires_at: 2030-01-31T00:00:00Z
""",
        encoding="utf-8",
    )
    identity = await ApiKeys(file).authenticate(word + KEY)
    assert (identity.user_id, identity.kind, identity.name) == ("gateway", "service", "Gateway")
    assert (set(identity.orgs), set(identity.agents)) == ({"acme"}, {"bot1"})
    assert identity.sessions_owned == {"s1"}
    assert identity.sessions_shared == {"s2"}
    assert identity.avatar_url == "https://a.example/a.png"
    assert identity.key_id == "gateway-1"
    assert identity.expires_at == 1_896_048_000_000


async def test_an_unknown_key_is_invalid(file: Path) -> None:
    for text in (generate()[0], KEY[:-1], KEY + "x", "", "hpk_", DIGEST):
        with pytest.raises(ServiceError) as caught:
            await ApiKeys(file).authenticate(text)
        assert caught.value.code == "token_invalid"


async def test_a_hash_that_agrees_only_in_part_is_invalid(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_right(key: str) -> str:
        return hash_key(key)[:16] + "0" * 48

    keys = ApiKeys(file)
    monkeypatch.setattr(api_keys, "hash_key", half_right)
    with pytest.raises(ServiceError):
        await keys.authenticate(KEY)


async def test_a_key_ends_when_its_entry_says(tmp_path: Path) -> None:
    entry: dict[str, object] = {
        "id": "k",
        "sha256": DIGEST,
        "user": "a",
        "expires_at": "2030-01-31T00:00:00",
    }
    now = 1_896_047_999.0
    keys = ApiKeys(write(tmp_path / "k", entry), clock=lambda: now)
    await keys.authenticate(KEY)
    now += 1
    with pytest.raises(ServiceError) as caught:
        await keys.authenticate(KEY)
    assert caught.value.code == "token_expired"


async def test_the_file_is_read_again_when_it_changes(file: Path) -> None:
    keys = ApiKeys(file)
    other, digest = generate()
    write(file, {"id": "k2", "sha256": digest, "user": "other"})
    os.utime(file, ns=(1, 1))
    await keys.authenticate(KEY)
    await keys.check()
    assert (await keys.authenticate(other)).user_id == "other"
    with pytest.raises(ServiceError):
        await keys.authenticate(KEY)


async def test_removed_and_changed_keys_are_reported_when_the_file_is_stable(
    file: Path,
) -> None:
    keys = ApiKeys(file)
    reported: list[tuple[list[str | None], list[str | None]]] = []
    keys.on_withdrawn = lambda gone, other: reported.append(
        ([each.key_id for each in gone], [each.key_id for each in other])
    )
    k1: dict[str, object] = {"id": "k1", "sha256": DIGEST, "user": "gateway"}
    k2: dict[str, object] = {"id": "k2", "sha256": hash_key("other"), "user": "other"}

    async def look(*entries: dict[str, object]) -> Identity:
        if entries:
            write(file, *entries)
        await keys.check()
        with suppress(ServiceError):
            return await keys.authenticate(KEY)
        return Identity("nobody")

    first = await look()
    assert await look(k1, k2) is first
    await look()
    assert reported == []
    # Half a file, and then the whole of it.
    await look(k2)
    assert await look(k1, k2) is first
    await look()
    assert reported == []
    await look({**k1, "orgs": ["acme"]})
    await look()
    assert reported == [(["k2"], ["k1"])]
    await look(k2)
    await look()
    assert reported[1:] == [(["k1"], [])]


async def test_a_connection_ends_with_its_key_and_returns_with_the_identity_of_another_entry(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "CHECK_INTERVAL", 0.02)
    other, digest = generate()
    k1: dict[str, object] = {"id": "k1", "sha256": DIGEST, "user": "gateway", "kind": "service"}
    k2: dict[str, object] = {"id": "k2", "sha256": digest, "user": "other"}
    write(file, k1, k2)
    settings = Settings(
        api_keys_file=file, behind_tls_proxy=True, http_port=0, ws_port=0, log_level="error"
    )
    server = Server(settings)
    await server.start()
    try:
        async with (
            asyncio.timeout(PATIENCE),
            PubSubClient(server.ws, rest_url=server.http, token=other) as stays,
            PubSubClient(server.ws, rest_url=server.http, token=KEY) as ps,
        ):
            await stays.connect()
            await ps.publish("org.acme.x", {"data": 1})
            before = server.hub.stats.connections_total
            write(file, {**k1, "orgs": ["acme"]}, k2)
            await until(
                lambda: (server.hub.stats.connections_total, ps.state), (before + 1, "connected")
            )
            sub = await ps.subscribe("org.acme.x")
            await ps.publish("org.acme.x", {"data": 2})
            assert (await anext(sub)).data == 2
            write(file, k2)
            with pytest.raises(AuthError):
                await anext(sub)
            assert stays.state == "connected"
            assert server.hub.stats.connections_total == before + 1
    finally:
        await server.stop()


async def test_a_file_that_becomes_wrong_leaves_the_keys_as_they_are(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(file)
    replace(file, "keys: 7")
    await keys.check()
    await keys.authenticate(KEY)
    replace(file, None)
    await keys.check()
    await keys.authenticate(KEY)
    assert "keeping the previous API keys" in caplog.text
    assert KEY not in caplog.text


async def test_the_log_counts_the_keys_that_it_loads_again(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pubsub_server.auth.api_keys")
    keys = ApiKeys(file)
    other = {"id": "k2", "sha256": hash_key("hpk_other"), "user": "other"}
    replace(file, json.dumps({"keys": [other]}))
    await keys.check()
    assert caplog.messages == [f"loaded the API keys again: {file} has 1"]


async def test_a_key_that_is_removed_is_reported_even_after_a_typing_error_in_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_keys, "CHECK_INTERVAL", 0.02)
    keys = ApiKeys(file)
    gone: list[str | None] = []
    keys.on_withdrawn = lambda ended, _: gone.extend(each.key_id for each in ended)
    entry = f"{{id: k1, user: gateway, sha256: {DIGEST}, expires_at: 2030-02-30}}"
    keys.start()
    try:
        async with asyncio.timeout(PATIENCE):
            replace(file, f"keys: [{entry}]")
            await until(lambda: "day is out of range" in caplog.text)
            replace(file, "keys: []")
            await until(lambda: gone, ["k1"])
    finally:
        await keys.close()


async def test_clients_are_served_while_a_large_file_is_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ApiKeys(file)
    reading, served = threading.Event(), threading.Event()

    def read_slowly(path: Path) -> object:
        reading.set()
        assert served.wait(PATIENCE)
        return load(path)

    monkeypatch.setattr(api_keys, "load", read_slowly)
    replace(file, "keys: []")
    checking = asyncio.ensure_future(keys.check())
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(reading.wait)
        assert (await keys.authenticate(KEY)).user_id == "gateway"
        served.set()
        await checking
    with pytest.raises(ServiceError):
        await keys.authenticate(KEY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "`keys:`"),
        ("keys: {}", "`keys:`"),
        ("keys: [", "YAML"),
        ("keys: [7]", "key 1"),
        ("keys: [{id: a, user: b}]", "sha256"),
        ("keys: [{id: a, user: b, sha256: abc}]", "64 hexadecimal"),
        (f"keys: [{{user: b, sha256: {DIGEST}}}]", "`id`"),
        (f"keys: [{{id: a, sha256: {DIGEST}}}]", "key 1"),
        (
            f"keys: [{{id: 7, user: b, sha256: {DIGEST}}}]",
            "`id` is not text of at most 128 characters; put it in quotes",
        ),
        (
            f"keys: [{{id: a, user: no, sha256: {DIGEST}}}]",
            "`user` is not text of at most 128 characters; put it in quotes",
        ),
        (f"keys: [{{id: a, user: 2026-01-01, sha256: {DIGEST}}}]", "characters; put it in quotes"),
        (f"keys: [{{id: 1.5, user: b, sha256: {DIGEST}}}]", "characters; put it in quotes"),
        (f"keys: [{{id: a, sha256: {DIGEST}}}]", "`user` is missing"),
        (f"keys: [{{id: a, user: 007, sha256: {DIGEST}}}]", "YAML reads `007` as the number 7"),
        (f"keys: [{{id: a, user: b, sha256: {DIGEST}, role: x}}]", "`role`"),
        (f"keys: [{{id: a, user: b, sha256: {DIGEST}, kind: root}}]", "`kind`"),
        (
            f"keys: [{{id: a, user: b, sha256: {DIGEST}, expires_at: }}]",
            "key 1: `expires_at` is empty; leave it out for a key that does not expire",
        ),
        (f"keys: [{{id: a, user: b, sha256: {DIGEST}, expires_at: 7}}]", "`expires_at`"),
        (
            f"keys: [{{id: a, user: b, sha256: {DIGEST}, expires_at: soon}}]",
            "`expires_at` is 'soon'",
        ),
        (
            f"keys:\n- {{id: a, user: b, sha256: {DIGEST}, expires_at: 2030-02-30}}",
            "line 2: day is out of range",
        ),
        (
            f"keys: [{{id: a, user: b, sha256: {DIGEST}, expires_at: 9999-12-31T23:59:59Z}}]",
            "key 1: `expires_at` is too late; leave it out",
        ),
        (
            f"keys: [{{id: a, user: b, sha256: {DIGEST}}}, {{id: c, user: d, sha256: {DIGEST}}}]",
            "key 2",
        ),
    ],
)
def test_a_mistake_in_the_file_names_the_key(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ApiKeysError, match=r"keys\.yaml") as caught:
        load(file)
    assert expected in str(caught.value)


@pytest.mark.parametrize("date", ["2030-01-31", "'2030-01-31'", "2030-01-31T01:00:00+01:00"])
async def test_a_key_ends_at_the_beginning_of_a_date(tmp_path: Path, date: str) -> None:
    file = tmp_path / "keys.yaml"
    entry = f"{{id: a, user: b, sha256: {DIGEST}, expires_at: {date}}}"
    file.write_text(f"keys: [{entry}]", encoding="utf-8")
    end = datetime(2030, 1, 31, tzinfo=UTC).timestamp()
    assert (await ApiKeys(file, clock=lambda: end - 1).authenticate(KEY)).user_id == "b"
    with pytest.raises(ServiceError) as caught:
        await ApiKeys(file, clock=lambda: end).authenticate(KEY)
    assert caught.value.code == "token_expired"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ApiKeysError, match=r"none\.yaml: cannot be read"):
        ApiKeys(tmp_path / "none.yaml")


async def test_the_log_distinguishes_a_removed_key_from_a_changed_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pubsub_server.hub.admission")
    async with (
        running_server() as server,
        PubSubClient(url=server.ws, token=server.token("ana")) as one,
        PubSubClient(url=server.ws, token=server.token("ben")) as other,
    ):
        await one.connect()
        await other.connect()
        removed, changed = (
            each.identity for each in server.hub.core.connections.values() if each.identity
        )
        server.hub.admission.withdraw([removed], [changed])
    assert caplog.messages == [
        f"the API key was removed: {removed.key_id}; connections closed: 1",
        f"the entry of the API key has changed: {changed.key_id}; connections closed: 1",
    ]
