"""Receivers verify webhooks: signature, age, repetition."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.errors import InvalidOption, PubSubError
from hanzoai.pubsub.testing import ThreadedServer
from hanzoai.pubsub.webhooks import InvalidWebhook, SeenWebhooks, WebhookDelivery, sign, verify

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
NOW = 1_740_307_200.0
EVENTS: list[dict[str, Any]] = [
    {"event": "publish", "topic": "a.b", "time": 1_740_307_199_500, "data": {"id": "m1"}},
    {"event": "leave", "topic": "a.b", "time": 1_740_307_199_600, "data": {"user_id": "u"}},
]
BODY = json.dumps({"events": EVENTS}).encode()


def signed(body: bytes = BODY, secret: str = SECRET, sent_at: float = NOW) -> dict[str, str]:
    return sign(body, secret, id="wh_1", sent_at=sent_at)


def test_a_genuine_request_gives_its_events_in_order_with_times_in_seconds() -> None:
    delivery = verify(BODY, signed(), SECRET, now=NOW)
    assert (delivery.id, delivery.sent_at) == ("wh_1", NOW)
    assert [(e.event, e.topic, e.time, e.data) for e in delivery.events] == [
        ("publish", "a.b", 1_740_307_199.5, {"id": "m1"}),
        ("leave", "a.b", 1_740_307_199.6, {"user_id": "u"}),
    ]


def test_a_known_request_has_the_known_signature() -> None:
    assert sign(
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id="msg_p5jX",
        sent_at=1614265330,
    )["webhook-signature"].startswith("v1,")
    # From the documentation of Standard Webhooks.
    headers = sign(
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        sent_at=1614265330,
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("place", range(0, len(BODY), 7))
def test_a_changed_byte_is_refused(place: int) -> None:
    changed = BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :]
    with pytest.raises(InvalidWebhook) as caught:
        verify(changed, signed(), SECRET, now=NOW)
    assert (caught.value.field, caught.value.status) == ("webhook-signature", 401)


@pytest.mark.parametrize("body", [None, {"events": EVENTS}, [], 5, BODY.decode()])
def test_a_body_that_is_not_bytes_is_a_bad_request(body: Any) -> None:
    with pytest.raises(InvalidWebhook) as caught:
        verify(body, signed(), SECRET, now=NOW)
    assert (caught.value.field, caught.value.status) == ("body", 400)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    headers = signed()
    del headers[name]
    with pytest.raises(InvalidWebhook, match=f"{name} is missing"):
        verify(BODY, headers, SECRET, now=NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_the_signed_headers_cannot_be_changed(name: str) -> None:
    headers = signed()
    headers[name] += "1"
    with pytest.raises(InvalidWebhook, match="signature"):
        verify(BODY, headers, SECRET, now=NOW)


@pytest.mark.parametrize("stamp", ["soon", "-5", "1e9", "٣", "9" * 40])
def test_a_time_that_is_not_a_number_is_rejected(stamp: str) -> None:
    with pytest.raises(InvalidWebhook, match="number of seconds"):
        verify(BODY, {**signed(), "webhook-timestamp": stamp}, SECRET, now=NOW)


@pytest.mark.parametrize(("age", "words"), [(301, "301 s old"), (-301, "301 s ahead")])
def test_a_request_outside_the_tolerance_is_refused(age: float, words: str) -> None:
    with pytest.raises(InvalidWebhook, match=words):
        verify(BODY, signed(), SECRET, now=NOW + age)
    assert verify(BODY, signed(), SECRET, now=NOW + age, tolerance=302)


@pytest.mark.parametrize("tolerance", [0, -1, float("nan")])
def test_a_tolerance_that_is_not_above_zero_is_refused(tolerance: float) -> None:
    with pytest.raises(InvalidOption) as caught:
        verify(BODY, signed(), SECRET, now=NOW, tolerance=tolerance)
    assert caught.value.field == "tolerance"


def test_an_old_request_is_refused_by_a_clock_that_is_not_a_number() -> None:
    with pytest.raises(InvalidWebhook, match="tolerance"):
        verify(BODY, signed(), SECRET, now=float("nan"))


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_body_may_be_any_kind_of_bytes(kind: Any) -> None:
    assert len(verify(kind(BODY), signed(), SECRET, now=NOW).events) == len(EVENTS)


@pytest.mark.parametrize(
    "given", ["", "v1", "v1,", "v1,?", "v2,AAAA", "v1a,AAAA", "v1,AAAA " * 50, "v1,\udc80é"]
)
def test_a_malformed_signature_is_rejected(given: str) -> None:
    with pytest.raises(InvalidWebhook):
        verify(BODY, {**signed(), "webhook-signature": given}, SECRET, now=NOW)


def test_headers_are_found_in_any_case() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    assert verify(BODY, headers, SECRET, now=NOW).id == "wh_1"


def test_both_secrets_pass_while_one_is_replaced() -> None:
    for secret in (SECRET, "plain text"):
        assert verify(BODY, signed(secret=secret), [SECRET, "plain text"], now=NOW)
    both = f"{signed()['webhook-signature']} {signed(secret='new')['webhook-signature']}"
    assert verify(BODY, {**signed(), "webhook-signature": both}, "new", now=NOW)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        [],
        ["a", ""],
        "whsec_?",
        "whsec_",
        None,
        b"secret",
        [None],
        ["a", b"b"],
        5,
        {"a": 1},
        bytearray(b"a"),
    ],
)
def test_the_error_for_an_invalid_secret_names_the_option(secret: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        verify(BODY, signed(), secret, now=NOW)
    assert caught.value.field == "secret"


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("headers", {"headers": None}),
        ("headers", {"headers": [("webhook-id", "wh_1")]}),
        ("headers", {"headers": {b"webhook-id": b"wh_1"}}),
        ("headers", {"headers": {None: "wh_1"}}),
        ("tolerance", {"tolerance": "300"}),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(field: str, arguments: dict[str, Any]) -> None:
    given: dict[str, Any] = {"body": BODY, "headers": signed(), "secret": SECRET, **arguments}
    with pytest.raises(InvalidOption) as caught:
        verify(**given)
    assert caught.value.field == field


def test_a_header_that_is_not_text_counts_as_missing() -> None:
    with pytest.raises(InvalidWebhook, match="webhook-timestamp is missing"):
        verify(BODY, {**signed(), "webhook-timestamp": 5}, SECRET)  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("field", "body", "secret"),
    [("body", "{}", SECRET), ("secret", BODY, None), ("secret", BODY, "")],
)
def test_only_bytes_are_signed_with_a_secret(field: str, body: Any, secret: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        sign(body, secret, id="wh_1", sent_at=NOW)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("id", {"id": None}),
        ("id", {"id": 5}),
        ("id", {"id": ""}),
        ("id", {"id": "\udc80"}),
        ("sent_at", {"sent_at": None}),
        ("sent_at", {"sent_at": "1740307200"}),
        ("sent_at", {"sent_at": True}),
        ("sent_at", {"sent_at": float("nan")}),
        ("sent_at", {"sent_at": float("inf")}),
        ("sent_at", {"sent_at": -1}),
        ("sent_at", {"sent_at": 1e12}),
    ],
)
def test_headers_that_verify_would_refuse_are_not_signed(
    field: str, arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"id": "wh_1", "sent_at": NOW, **arguments}
    with pytest.raises(InvalidOption) as caught:
        sign(BODY, SECRET, **given)
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"events": 5}',
        b'{"events": []}',
        b'{"events": [{}]}',
        b'{"events": [null]}',
        b'{"events": [{"event": 1, "topic": "a", "time": 1, "data": 1}]}',
        b'{"events": [{"event": "publish", "topic": null, "time": 1, "data": 1}]}',
        b'{"events": [{"event": "publish", "topic": "a", "time": true, "data": 1}]}',
        b'{"events": [{"event": "publish", "topic": "a", "time": 1}]}',
        b'{"events": [{"event": "publish", "topic": "a", "time": NaN, "data": 1}]}',
        b'{"events": [{"event": "publish", "topic": "a", "time": 1%s, "data": 1}]}' % (400 * b"0"),
        b"[" * 100_000,
    ],
)
def test_a_signed_body_that_is_not_a_batch_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(InvalidWebhook) as caught:
        verify(body, signed(body), SECRET, now=NOW)
    assert (caught.value.field, caught.value.status) == ("body", 400)


def test_the_error_is_one_of_the_sdk_and_of_python_and_survives_pickling() -> None:
    with pytest.raises(InvalidWebhook) as caught:
        verify(BODY, {}, SECRET, now=NOW)
    assert isinstance(caught.value, PubSubError | ValueError)
    assert SECRET not in f"{caught.value!r} {caught.value}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.status, again.field, str(again)) == (401, "webhook-id", str(caught.value))


def test_a_delivery_is_new_once_as_long_as_it_could_be_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = SeenWebhooks(tolerance=10)
    monkeypatch.setattr("time.time", lambda: NOW)
    assert [seen.is_new(id) for id in "abab"] == [True, True, False, False]
    monkeypatch.setattr("time.time", lambda: NOW + 20)
    assert [seen.is_new(id) for id in "ac"] == [False, True]
    monkeypatch.setattr("time.time", lambda: NOW + 21)
    assert [seen.is_new(id) for id in "cd"] == [False, True]
    assert len(seen) == 2


def test_an_id_that_two_threads_receive_at_once_is_new_to_one_of_them() -> None:
    looked_up = threading.Barrier(2)
    hashed: Counter[int] = Counter()

    class Id(str):
        __slots__ = ()

        def __hash__(self) -> int:
            hashed[threading.get_ident()] += 1
            if hashed[threading.get_ident()] == 2:
                # This thread has not found the id, and is about to remember it.
                with contextlib.suppress(threading.BrokenBarrierError):
                    looked_up.wait(0.5)
            return super().__hash__()

    seen = SeenWebhooks()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(seen.is_new, [Id("wh_1"), Id("wh_1")]))
    assert sorted(found) == [False, True]


@pytest.mark.parametrize("tolerance", [0, -1, float("nan")])
def test_a_memory_of_no_time_is_refused(tolerance: float) -> None:
    with pytest.raises(InvalidOption, match="tolerance"):
        SeenWebhooks(tolerance)


async def test_webhooks_of_a_real_server_are_verified() -> None:
    deliveries: asyncio.Queue[WebhookDelivery] = asyncio.Queue()

    async def receive(request: web.Request) -> web.Response:
        deliveries.put_nowait(verify(await request.read(), request.headers, SECRET))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/hook", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        hook = {"url": f"http://127.0.0.1:{port}/hook", "secret": SECRET, "topics": ["demo.**"]}
        with ThreadedServer(webhooks=[{**hook, "events": ["publish"]}]) as server:
            async with PubSubClient(**server.options, token=server.token()) as ps:
                await ps.publish("demo.orders", {"data": {"amount": 5}})
                # Leaving a ThreadedServer blocks this loop, which the receiver needs.
                delivery = await asyncio.wait_for(deliveries.get(), 30)
    finally:
        await runner.cleanup()
    [event] = delivery.events
    assert (event.event, event.topic, event.data["data"]) == (
        "publish",
        "demo.orders",
        {"amount": 5},
    )
