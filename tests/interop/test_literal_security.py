"""HIP-56's security considerations, one by one."""

from __future__ import annotations

import json
import ssl
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trustme

from pubsub_server.settings.config import Settings
from pubsub_server.settings.sources import load
from pubsub_server.shared.limits import RateLimiter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import RulesFile, Start
    from tests.interop.peer import Node, Socket

TOPIC = "agent.bot1.events"
GRANT = """
rules:
  - pattern: "**"
    require: {authenticated: true}
    publish: true
"""


# 3. TLS everywhere


@pytest.mark.statement("H-040", "H-143")
async def test_both_listeners_use_tls(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    certificate.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    node = await start(behind_tls_proxy=False, tls_cert=chain, tls_key=key)
    node.ssl = ssl.create_default_context()
    authority.configure_trust(node.ssl)
    assert node.ws.startswith("wss://")
    assert node.ws.endswith("/ws")
    assert node.http.startswith("https://")
    token = node.iam.token()
    async with (
        node.socket(token) as socket,
        node.events(token, topics="system.announcements") as stream,
    ):
        await socket.subscribe("system.announcements")
        await stream.event("subscribed")
        await node.publish("system.announcements", {"n": 1})
        assert (await socket.message())["data"] == {"n": 1}
        assert (await stream.event("message")).json["data"] == {"n": 1}


@pytest.mark.statement("H-143")
async def test_plaintext_is_refused_unless_a_proxy_or_development_is_named(start: Start) -> None:
    with pytest.raises(Exception, match="tls"):
        await start(behind_tls_proxy=False)


# 4. Rate limiting


class Rates:
    """The publish rates of a server, with a clock that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        limiter = partial(RateLimiter, clock=lambda: self.seconds)
        monkeypatch.setattr("pubsub_server.server.RateLimiter", limiter)


RATES = pytest.mark.parametrize(("kind", "rate"), [("user", 10), ("service", 100)])
"""Messages per second in HIP-56."""


@pytest.mark.statement("H-144")
@RATES
async def test_a_socket_publishes_up_to_its_rate_and_no_more(
    start: Start, rules: RulesFile, monkeypatch: pytest.MonkeyPatch, kind: str, rate: int
) -> None:
    rates = Rates(monkeypatch)
    node = await start(rules=rules(GRANT))

    async def taken(socket: Socket) -> int:
        """Send three times the limit; return the accepted number. The rest is rejected."""
        for n in range(3 * rate):
            await socket.send({"type": "publish", "topic": TOPIC, "data": {"n": n}})
        frames = await socket.fence()
        refused = [frame for frame in frames if frame["type"] == "error"]
        assert {frame["code"] for frame in refused} == {"rate_limited"}
        assert all(0 < frame["retry_after_ms"] <= 1000 / rate for frame in refused)
        numbers = [f["message"]["data"]["n"] for f in frames if f["type"] == "message"]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) + len(refused) == 3 * rate
        return len(numbers)

    token = node.iam.token("pub", kind=kind)
    async with node.socket(token) as socket, node.socket(node.iam.token("b", kind=kind)) as other:
        await socket.subscribe(TOPIC, presence=False)
        assert await taken(socket) == rate
        rates.seconds += 0.5
        assert await taken(socket) == rate / 2
        rates.seconds += 60
        assert await taken(socket) == rate
        await socket.send({"type": "unsubscribe", "topics": [TOPIC]})
        await other.subscribe(TOPIC, presence=False)
        assert await taken(other) == rate, "each client has a rate of its own"


@pytest.mark.statement("H-144")
@RATES
async def test_posts_above_the_rate_get_429_with_the_time_to_wait(
    start: Start, rules: RulesFile, monkeypatch: pytest.MonkeyPatch, kind: str, rate: int
) -> None:
    rates = Rates(monkeypatch)
    node = await start(rules=rules(GRANT))
    async with node.rest(node.iam.token("pub", kind=kind)) as rest:

        async def taken() -> int:
            """Return the number of posts that are accepted before one is rejected."""
            for count in range(2 * rate):
                answer = await rest.post(
                    f"/v1/topics/{TOPIC}/messages", json={"type": "t", "data": {}}
                )
                if answer.status_code == 429:
                    assert answer.json()["code"] == "rate_limited"
                    assert answer.headers["retry-after"] == "1"
                    return count
                assert answer.is_success
            return 2 * rate

        assert await taken() == rate
        rates.seconds += 0.5
        assert await taken() == rate / 2


@pytest.mark.statement("H-145")
async def test_a_user_receives_faster_than_it_may_publish(start: Start) -> None:
    node = await start(publish_rate_service=1e6)
    reader = node.iam.token("alice", agents=["bot1"])
    async with node.socket(reader) as socket, node.socket(node.iam.service()) as service:
        await socket.subscribe(TOPIC)
        for n in range(1_000):
            await service.send({"type": "publish", "topic": TOPIC, "data": {"n": n}})
        received = [(await socket.message())["data"]["n"] for _ in range(1_000)]
    assert received == list(range(1_000))


# 5. Message size limit


@pytest.mark.statement("H-146")
async def test_a_payload_of_256_kb_passes_and_one_byte_more_is_an_error(
    start: Start, rules: RulesFile
) -> None:
    node = await start(rules=rules(GRANT))
    assert Settings().max_payload == 256 * 1024
    fits = {"x": "a" * (262_144 - len('{"x":""}'))}
    over = {"x": fits["x"] + "a"}
    async with node.socket(node.iam.service()) as socket:
        await socket.subscribe(TOPIC)
        await socket.send({"type": "publish", "topic": TOPIC, "data": over})
        assert (await socket.until("error"))["code"] == "payload_too_large"
        await socket.send({"type": "publish", "topic": TOPIC, "data": fits})
        assert (await socket.message())["data"] == fits
    async with node.rest(node.iam.service()) as rest:
        path = f"/v1/topics/{TOPIC}/messages"
        assert (await rest.post(path, json={"type": "t", "data": fits})).is_success
        answer = await rest.post(path, json={"type": "t", "data": over})
    assert answer.status_code == 413
    assert answer.json()["code"] == "payload_too_large"


# 7. Connection limits


@pytest.mark.statement("H-148")
@pytest.mark.parametrize(
    ("settings", "users"),
    [
        ({"connections_per_user": 2}, ["alice", "alice", "alice"]),
        ({"connections_per_org": 2}, ["alice", "bob", "carol"]),
    ],
    ids=["of a user", "of an organization"],
)
async def test_a_connection_above_the_limit_is_rejected_until_another_one_closes(
    start: Start, settings: dict[str, int], users: list[str]
) -> None:
    node = await start(**settings)
    tokens = [node.iam.token(user, orgs=["acme"]) for user in users]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(node.socket(tokens[0]))
        second = await stack.enter_async_context(node.socket(tokens[1]))
        async with node.open() as third:
            answer = await third.auth(tokens[2])
            assert answer["type"] in {"auth.error", "error"}
            assert answer["code"] == "connection_limit"
            assert await third.closed() == 4429
        await second.connection.close()
        async with node.open() as third:
            assert (await third.auth(tokens[2]))["type"] == "auth.ok"


@pytest.mark.statement("H-148")
def test_a_hundred_connections_per_user_and_ten_thousand_per_organization_are_the_defaults() -> (
    None
):
    settings = Settings()
    assert (settings.connections_per_user, settings.connections_per_org) == (100, 10_000)


# 8. Injection prevention


@pytest.mark.statement("H-149")
@pytest.mark.parametrize(
    "topic", ["a b", "a/b", "a:b", "", "ä.b", "a..b", ".a", "a.", "a\nb", "a*.b", "x" * 256]
)
async def test_an_invalid_name_is_neither_subscribed_nor_published_to(
    start: Start, rules: RulesFile, topic: str
) -> None:
    node = await start(rules=rules(GRANT))
    async with node.socket(node.iam.service()) as socket:
        await socket.send({"type": "subscribe", "topics": [topic]})
        assert (await socket.until("error"))["code"] == "invalid_topic"
        await socket.send({"type": "publish", "topic": topic, "data": {}})
        assert (await socket.until("error"))["code"] == "invalid_topic"
        await socket.send({"type": "ping"})
        assert (await socket.next())["type"] == "pong"


@pytest.mark.statement("H-149")
@pytest.mark.parametrize("topic", ["chat.*", "chat.**", "**"])
async def test_nothing_can_be_published_to_a_wildcard(
    start: Start, rules: RulesFile, topic: str
) -> None:
    node = await start(rules=rules(GRANT))
    async with node.socket(node.iam.service()) as socket, node.rest(node.iam.service()) as rest:
        await socket.send({"type": "publish", "topic": topic, "data": {}})
        assert (await socket.until("error"))["code"] == "invalid_topic"
        answer = await rest.post(f"/v1/topics/{topic}/messages", json={"type": "t", "data": {}})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_topic")


@pytest.mark.statement("H-150")
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "7",
        '{"type":"publish","topic":"agent.bot1.events","data":NaN}',
        '{"type":"publish","topic":"agent.bot1.events"}',
        '{"type":"subscribe","topics":"agent"}',
        '{"type":"subscribe","topics":[1]}',
        '{"type":7}',
        "{}",
    ],
)
async def test_invalid_input_is_rejected_and_does_not_affect_other_clients(
    node: Node, text: str
) -> None:
    reader = node.iam.token("alice", agents=["bot1"])
    async with node.socket(reader) as witness, node.socket(node.iam.service()) as socket:
        await witness.subscribe(TOPIC)
        await socket.connection.send(text)
        error = await socket.until("error")
        assert error["code"] in {"invalid_frame", "invalid_payload", "invalid_topic", "unsupported"}
        assert error["message"]
        await node.publish(TOPIC, {"n": 1})
        assert [m["data"] for m in await witness.messages()] == [{"n": 1}]


@pytest.mark.statement("H-150")
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"type":"t","data":NaN}', b""])
async def test_a_body_that_is_not_json_is_refused(node: Node, body: bytes) -> None:
    async with node.rest(node.iam.service()) as rest:
        answer = await rest.post(
            f"/v1/topics/{TOPIC}/messages",
            content=body,
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code in {400, 422}


# 9. Audit logging


async def test_subscribe_publish_and_unsubscribe_of_sensitive_topics_are_audited(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "audit.jsonl"
    node = await start(audit_topics=("agent.**",), audit_file=log)
    alice = node.iam.token("alice", agents=["bot1"])
    async with node.socket(alice) as socket:
        await socket.subscribe(TOPIC, "system.announcements")
        await node.publish(TOPIC, {"secret": "s3cret"})
        await node.publish("system.announcements", {})
        await socket.send({"type": "unsubscribe", "topics": [TOPIC]})
        await socket.fence()
    await node.stop()
    text = log.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    kept = [(r["event"], r["topic"]) for r in records if "topic" in r]
    assert kept == [("subscribe", TOPIC), ("publish", TOPIC), ("unsubscribe", TOPIC)]
    assert "s3cret" not in text
    assert alice not in text


# Ports, deployment


@pytest.mark.statement("H-002")
def test_the_ports_of_hip_56_are_the_defaults() -> None:
    settings = Settings()
    assert (settings.http_port, settings.ws_port) == (8056, 8057)


@pytest.mark.statement("H-120")
def test_the_six_variables_of_the_deployment_configure_the_server() -> None:
    settings = load(
        environ={
            "REDIS_URL": "redis://redis:6379",
            "IAM_URL": "https://hanzo.id",
            "IAM_JWKS_URL": "https://hanzo.id/.well-known/jwks.json",
            "HISTORY_MAX_MESSAGES": "100",
            "HISTORY_MAX_AGE": "3600",
            "LOG_LEVEL": "info",
        }
    )
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://redis:6379"
    assert settings.iam_url == "https://hanzo.id"
    assert settings.jwks_url == "https://hanzo.id/.well-known/jwks.json"
    assert (settings.history_max_messages, settings.history_max_age) == (100, 3600)
    assert settings.log_level == "info"
