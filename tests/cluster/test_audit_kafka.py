"""Audit records in a real Kafka: over every kind of listener, during outages, and in the log."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from hanzoai.pubsub import PubSubClient
from pubsub_server import preflight
from pubsub_server.access.setup import StartError
from pubsub_server.observe import audit_kafka, audit_streams
from pubsub_server.observe.audit_kafka import KafkaCarrier, build_tls
from pubsub_server.observe.audit_streams import StreamSink
from pubsub_server.settings.sources import SettingsError, dump, load
from pubsub_server.testing import running_server
from tests.cluster.kafka import PASSWORD, USER, Kafka
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

# aiokafka leaves a connection open if a broker rejects the user during the shutdown. An error in
# a finalizer would keep its socket alive, so that a later test reports it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

BOUND = 120
TOPICS = itertools.count()


@pytest.fixture(autouse=True)
def finalizers_run_within_their_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = Kafka(tmp_path_factory.mktemp("kafka"))
    asyncio.run(kafka.start())
    yield kafka
    kafka.end()


@pytest.fixture
async def own(tmp_path: Path) -> AsyncGenerator[Kafka]:
    kafka = Kafka(tmp_path, session=1_000)
    await kafka.start()
    yield kafka
    kafka.end()


def settings(kafka: Kafka, listener: str, **more: Any) -> dict[str, Any]:
    """Settings of a server that writes correctly to this broker."""
    found: dict[str, Any] = {
        "audit_topics": ["demo.**"],
        "audit_kafka": [kafka.address(listener)],
        "audit_kafka_topic": f"audit-{next(TOPICS)}",
    }
    if listener != "PLAINTEXT":
        found |= {"audit_kafka_tls": True, "audit_kafka_ca": kafka.ca}
    if listener == "MUTUAL":
        found |= {"audit_kafka_cert": kafka.cert, "audit_kafka_key": kafka.key}
    if listener == "SASL_SSL":
        found |= {"audit_kafka_user": USER, "audit_kafka_password": PASSWORD}
    return found | more


async def records(kafka: Kafka, topic: str) -> list[list[dict[str, Any]]]:
    return [[json.loads(each) for each in part] for part in await kafka.kept(topic)]


@pytest.mark.parametrize(
    ("listener", "more"),
    [
        ("PLAINTEXT", {}),
        ("SSL", {}),
        ("MUTUAL", {}),
        ("SASL_SSL", {}),
        ("SASL_SSL", {"audit_kafka_mechanism": "SCRAM-SHA-256"}),
        ("SASL_SSL", {"audit_kafka_mechanism": "PLAIN"}),
    ],
)
async def test_records_of_two_nodes_are_all_there_each_node_in_its_order(
    shared: Kafka,
    listener: str,
    more: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, the first connection to a broker may take longer than a shutdown allows.
    monkeypatch.setattr(audit_streams, "END_WITHIN", BOUND)
    given = settings(shared, listener, publish_rate_service=100_000, **more)
    await shared.make(given["audit_kafka_topic"])
    async with asyncio.timeout(BOUND):
        async with (
            running_server(**given) as a,
            running_server(**given) as b,
            PubSubClient(a.ws, token=a.service_token("ann")) as ann,
            PubSubClient(b.ws, token=b.service_token("ben")) as ben,
        ):
            published = {
                name: [
                    (await client.publish(f"demo.{n % 7}", {"data": "a payload"})).id
                    for n in range(300)
                ]
                for name, client in (("ann", ann), ("ben", ben))
            }
        # A server sends the waiting records when it stops.
        parts = await records(shared, given["audit_kafka_topic"])
    for name, ids in published.items():
        found = [
            [each["id"] for each in part if each["event"] == "publish" and each["user_id"] == name]
            for part in parts
        ]
        assert [each for each in found if each] == [ids]
    assert "payload" not in json.dumps(parts)
    assert PASSWORD not in caplog.text


@pytest.mark.statement("H-151")
async def test_actions_on_sensitive_topics_are_written_to_the_topic_audit_log(
    shared: Kafka,
) -> None:
    await shared.make("audit_log", partitions=1)
    given = settings(shared, "PLAINTEXT", audit_kafka_topic="audit_log")
    async with asyncio.timeout(BOUND):
        async with (
            running_server(**given) as server,
            PubSubClient(server.ws, token=server.service_token("ann")) as ann,
        ):
            for topic in ("demo.secret", "system.public"):
                sub = await ann.subscribe(topic)
                await ann.publish(topic, {"data": "a payload"})
                await sub.unsubscribe()
        (part,) = await records(shared, "audit_log")
    reported = [(each["event"], each["topic"], each["user_id"]) for each in part if "topic" in each]
    assert reported == [(e, "demo.secret", "ann") for e in ("subscribe", "publish", "unsubscribe")]
    assert "payload" not in json.dumps(part)


def untrusted(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    return settings(kafka, "SASL_SSL", audit_kafka_ca=other)


def another_name(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    port = kafka.ports["SSL"]
    return settings(kafka, "SSL", audit_kafka=[f"localhost:{port}"])


def wrong_password(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SASL_SSL", audit_kafka_password="wrong horse")


def wrong_plain_password(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    more = {"audit_kafka_password": "wrong horse", "audit_kafka_mechanism": "PLAIN"}
    return settings(kafka, "SASL_SSL", **more)


def unknown_user(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SASL_SSL", audit_kafka_user="nobody")


def one_of_two_away(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    found = wrong_password(kafka, tmp_path)
    return {**found, "audit_kafka": [*found["audit_kafka"], "127.0.0.1:1"]}


def no_certificate(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SSL", audit_kafka=[kafka.address("MUTUAL")])


def certificate_of_another(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    other = trustme.CA().issue_cert("client.example")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    other.cert_chain_pems[0].write_to_path(cert)
    other.private_key_pem.write_to_path(key)
    return settings(kafka, "MUTUAL", audit_kafka_cert=cert, audit_kafka_key=key)


def no_user(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SSL", audit_kafka=[kafka.address("SASL_SSL")])


def user_where_none_is_asked_for(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SASL_SSL", audit_kafka=[kafka.address("SSL")])


def no_tls(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "PLAINTEXT", audit_kafka=[kafka.address("SSL")])


def tls_where_none_is(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "SSL", audit_kafka=[kafka.address()])


def nobody_there(kafka: Kafka, tmp_path: Path) -> dict[str, Any]:
    return settings(kafka, "PLAINTEXT", audit_kafka=["127.0.0.1:1"])


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (untrusted, "audit_kafka_ca: the broker's certificate is not trusted"),
        (another_name, "audit_kafka: the broker's certificate is for another name"),
        (wrong_password, "audit_kafka_user, audit_kafka_password: the broker rejects them"),
        (wrong_plain_password, "audit_kafka_user, audit_kafka_password: the broker rejects them"),
        (unknown_user, "audit_kafka_user, audit_kafka_password: the broker rejects them"),
        (one_of_two_away, "audit_kafka_user, audit_kafka_password: the broker rejects them"),
        (no_certificate, "audit_kafka_cert, audit_kafka_key: the broker refuses the certificate"),
        (
            certificate_of_another,
            "audit_kafka_cert, audit_kafka_key: the broker refuses the certificate",
        ),
        (no_user, "if it requires a user, set audit_kafka_user"),
        (
            user_where_none_is_asked_for,
            "audit_kafka_user: this port of the broker does not accept a user",
        ),
        (no_tls, "if its port uses TLS, set audit_kafka_tls"),
        (tls_where_none_is, "otherwise leave it out"),
        (nobody_there, "audit_kafka: no broker at 127.0.0.1:1 answers"),
    ],
)
async def test_one_line_says_which_setting_is_wrong_and_nothing_waits_for_kafka(
    shared: Kafka,
    tmp_path: Path,
    wrong: Callable[[Kafka, Path], dict[str, Any]],
    expected: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_streams, "END_WITHIN", 0.2)
    given = wrong(shared, tmp_path)
    async with asyncio.timeout(BOUND):
        async with (
            running_server(**given) as server,
            PubSubClient(server.ws, token=server.service_token("ann")) as ann,
        ):
            await ann.publish("demo.x", {"data": 0})
            await until(lambda: lines(caplog) != [])
            for n in range(20):
                await ann.publish("demo.x", {"data": n})
    first, *rest = lines(caplog)
    assert first.startswith("Kafka accepts no audit records: ")
    assert expected in first
    # The log names the problem once for all attempts, and finally the number of lost records.
    (last,) = rest
    assert "audit records were not sent before shutdown" in last
    for secret in (PASSWORD, "wrong horse"):
        assert secret not in caplog.text
    gc.collect()
    # A library that bypasses the server's logging would break the JSON lines.
    assert capfd.readouterr().err == ""


def lines(caplog: pytest.LogCaptureFixture, least: int = logging.WARNING) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "pubsub_server.observe.audit" and record.levelno >= least
    ]


async def test_a_broker_that_is_killed_and_comes_back_has_every_record_once_in_order(
    own: Kafka,
) -> None:
    await own.make("audit")
    async with asyncio.timeout(BOUND):
        sink = StreamSink(KafkaCarrier([own.address()], "audit"), capacity=10_000)
        numbers = itertools.count()

        def put(count: int) -> None:
            for _ in range(count):
                sink.put({"n": next(numbers)})

        put(1_000)
        await until(lambda: sink.waiting < 600)
        own.end()
        put(1_000)
        await own.start()
        put(1_000)
        await until(lambda: sink.waiting, 0)
        await sink.close()
        parts = await records(own, "audit")
    assert [[r["n"] for r in part] for part in parts if part] == [list(range(3_000))]
    assert sink.dropped == 0


async def test_a_producer_that_is_replaced_sends_nothing_afterwards(
    own: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own.make("audit")
    monkeypatch.setattr(KafkaCarrier, "patience", 0.3)
    made = 0
    async with asyncio.timeout(BOUND):
        carrier = KafkaCarrier([own.address()], "audit")
        make = carrier._make

        def counted() -> Any:
            nonlocal made
            made += 1
            return make()

        carrier._make = counted
        sink = StreamSink(carrier, capacity=10_000)
        sink.put({"n": 0})
        await until(lambda: sink.waiting, 0)
        own.signal(signal.SIGSTOP)
        for number in range(1, 800):
            sink.put({"n": number})
        await until(lambda: made > 1)
        own.signal(signal.SIGCONT)
        await until(lambda: sink.waiting, 0)
        for number in range(800, 900):
            sink.put({"n": number})
        await until(lambda: sink.waiting, 0)
        await sink.close()
        (numbers,) = [[r["n"] for r in part] for part in await records(own, "audit") if part]
    assert sink.dropped == 0
    # No record is missing, and each duplicate precedes all later records.
    assert list(dict.fromkeys(numbers)) == list(range(900))
    assert numbers[-100:] == list(range(800, 900))


async def test_a_missing_topic_is_named_and_gets_everything_once_it_is_made(
    shared: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_kafka, "REQUEST_WITHIN", 0.2)
    caplog.set_level(logging.INFO, "pubsub_server.observe.audit")
    async with asyncio.timeout(BOUND):
        sink = StreamSink(KafkaCarrier([shared.address()], "late"), capacity=10)
        sink.put({"n": 1})
        # On a busy machine, the broker may answer none of the first requests in time.
        missing = "audit_kafka_topic: there is no late"
        await until(lambda: any(missing in expected for expected in lines(caplog)))
        await shared.make("late")
        await until(lambda: sink.waiting, 0)
        assert lines(caplog, logging.INFO)[-1] == "Kafka accepts audit records again"
        await sink.close()
        assert [part for part in await records(shared, "late") if part] == [[{"n": 1}]]


def test_what_kafka_is_not_given_in_full_or_not_safely_is_refused(tmp_path: Path) -> None:
    start = {"audit_topics": "a", "audit_kafka": "h:1"}
    for more, expected in (
        ({"audit_kafka": "kafka://h:1"}, "is not `host:port`"),
        ({"audit_kafka_user": "u"}, "audit_kafka_user is set without audit_kafka_password"),
        ({"audit_kafka_ca": "ca.pem"}, "audit_kafka_ca is set without audit_kafka_tls"),
        (
            {"audit_kafka_tls": "yes", "audit_kafka_key": "k"},
            "audit_kafka_key is set without audit_kafka_cert",
        ),
        (
            {
                "audit_kafka_user": "u",
                "audit_kafka_password": "pa55",
                "audit_kafka_mechanism": "PLAIN",
            },
            "anyone on the network could read the password",
        ),
    ):
        with pytest.raises(SettingsError) as caught:
            load({**start, **more})
        assert expected in str(caught.value)
        assert "pa55" not in str(caught.value)
    with pytest.raises(SettingsError, match="audit_kafka_tls is set without audit_kafka"):
        load({"audit_kafka_tls": "yes"})
    junk = tmp_path / "junk.pem"
    junk.write_text("junk", encoding="utf-8")
    for more, expected in (
        ({"audit_kafka_ca": str(junk)}, f"audit_kafka_ca: {junk} contains no certificate in PEM"),
        (
            {"audit_kafka_cert": str(junk), "audit_kafka_key": "none"},
            f"audit_kafka_cert: {junk} contains no certificate in PEM",
        ),
    ):
        read = load({**start, "audit_kafka_tls": "yes", **more})
        with pytest.raises(StartError, match=expected):
            build_tls(read)
        assert expected in "\n".join(preflight.problems(read))


def test_the_password_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("audit_kafka_password: 12345678\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(file=file)
    assert "audit_kafka_password" in str(caught.value)
    assert "12345678" not in str(caught.value)
    environ = {"HANZO_PUBSUB_AUDIT_KAFKA_PASSWORD": "12345678"}
    read = load({"audit_topics": "a", "audit_kafka": "h:1", "audit_kafka_user": "u"}, environ)
    assert "12345678" not in dump(read) + repr(read)
