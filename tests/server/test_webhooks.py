"""Webhooks with a real receiver."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from pubsub_server.observe import webhooks
from pubsub_server.observe.webhooks import WebhookSender
from pubsub_server.settings.config import Settings
from pubsub_server.settings.entries import signing_key
from pubsub_server.settings.sources import load
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "a secret of some length"
PATIENCE = 60


@dataclass
class Receiver:
    """Sends `answers` one after the other, then 204."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    gate: asyncio.Event | None = None

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with self.arrived:
            self.got.append((headers, await request.read()))
            self.arrived.notify_all()
        if self.gate is not None:
            await self.gate.wait()
        status = self.answers.pop(0) if self.answers else 204
        return web.Response(status=status, headers=self.headers)

    async def requests(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE), self.arrived:
            await self.arrived.wait_for(lambda: len(self.got) >= count)

    def events(self) -> list[dict[str, Any]]:
        return [event for _, body in self.got for event in json.loads(body)["events"]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/hook", receiver.handle)
    app.router.add_post("/elsewhere", receiver.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    receiver.url = f"http://127.0.0.1:{port}/hook"
    yield receiver
    if receiver.gate is not None:
        receiver.gate.set()
    await runner.cleanup()


def sender(receiver: Receiver, hook: dict[str, object] | None = None, **more: Any) -> WebhookSender:
    entry = {"url": receiver.url, "secret": SECRET, **(hook or {})}
    settings = load({"webhooks": [entry], "webhook_backoff": 1, **more})
    return WebhookSender(settings, clock=lambda: 1_740_307_200.9, jitter=lambda: 0.0)


def _logged(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> list[str]:
    """The logged lines, each without the beginning, which names the receiver."""
    beginning = f"the webhook {receiver.url}"
    lines = [record.getMessage() for record in caplog.records]
    assert all(line.startswith(beginning) for line in lines)
    return [line.removeprefix(beginning) for line in lines]


async def test_an_event_is_posted_and_signed_by_the_standard(receiver: Receiver) -> None:
    hooks = sender(receiver)
    hooks.start()
    assert hooks.wants("publish", "a.b")
    hooks.notify("publish", "a.b", b'{"id":"m1","data":{"x":1}}')
    await hooks.close(PATIENCE)
    ((headers, body),) = receiver.got
    assert json.loads(body) == {
        "events": [
            {
                "event": "publish",
                "topic": "a.b",
                "time": 1_740_307_200_900,
                "data": {"id": "m1", "data": {"x": 1}},
            }
        ]
    }
    assert headers["content-type"] == "application/json"
    assert headers["webhook-timestamp"] == "1740307200"
    signed = f"{headers['webhook-id']}.1740307200.".encode() + body
    mac = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    assert hooks.delivered == 1


def test_a_secret_of_the_standards_form_is_base64() -> None:
    assert signing_key("whsec_" + base64.b64encode(b"key").decode()) == b"key"


@pytest.mark.parametrize(
    "secret", ["whsec_not base64 at all", "whsec_abcdefghijklm", "whsec_          "]
)
def test_a_secret_whose_rest_is_not_base64_is_refused_at_the_start(secret: str) -> None:
    with pytest.raises(ValidationError, match="is not base64 after whsec_") as caught:
        Settings.model_validate({"webhooks": [{"url": "https://example.com", "secret": secret}]})
    assert [error["loc"] for error in caught.value.errors()] == [("webhooks", 0, "secret")]


async def test_only_the_events_and_topics_asked_for_are_sent(receiver: Receiver) -> None:
    hooks = sender(receiver, {"topics": ["chat.**"], "events": ["join", "leave"]})
    assert not hooks.wants("publish", "chat.x")
    assert not hooks.wants("join", "agent.x")
    assert hooks.wants("leave", "chat.x")
    hooks.start()
    hooks.notify("publish", "chat.x", b"{}")
    hooks.notify("join", "chat.x", b"{}")
    await hooks.close(PATIENCE)
    assert [event["event"] for event in receiver.events()] == ["join"]


async def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(receiver: Receiver) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for number in range(1, 9):
        hooks.notify("publish", "a", b"%d" % number)
    receiver.answers = [204, 413, 413]
    receiver.gate.set()
    await hooks.close(PATIENCE)
    batches = [[event["data"] for event in json.loads(body)["events"]] for _, body in receiver.got]
    assert batches == [[0], [*range(1, 9)], [1, 2, 3, 4], [1, 2], [3, 4], [5, 6], [7, 8]]
    assert (hooks.delivered, hooks.dropped) == (9, 0)


async def test_batches_grow_again_some_time_after_one_was_too_large(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = sender(receiver)
    hooks.start()
    receiver.answers = [204, 413]

    async def events(first: int) -> list[list[int]]:
        """The batches, sent while the receiver holds an event back."""
        before = len(receiver.got)
        receiver.gate = asyncio.Event()
        hooks.notify("publish", "a", b"%d" % first)
        await receiver.requests(before + 1)
        for number in range(first + 1, first + 5):
            hooks.notify("publish", "a", b"%d" % number)
        delivered = hooks.delivered + 5
        receiver.gate.set()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: hooks.delivered, delivered)
        bodies = [json.loads(body) for _, body in receiver.got[before:]]
        return [[event["data"] for event in body["events"]] for body in bodies]

    assert await events(0) == [[0], [1, 2, 3, 4], [1, 2], [3, 4]]
    assert await events(5) == [[5], [6, 7], [8, 9]]
    monkeypatch.setattr(webhooks, "SMALLER_SECONDS", -1.0)
    assert await events(10) == [[10], [11, 12, 13, 14]]
    await hooks.close(PATIENCE)


async def test_one_event_that_is_too_large_is_dropped(receiver: Receiver) -> None:
    receiver.answers = [413]
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    hooks.notify("publish", "a", b"1")
    await hooks.close(PATIENCE)
    assert (hooks.delivered, hooks.dropped) == (1, 1)


async def test_a_batch_has_at_most_a_megabyte_unless_one_event_is_larger(
    receiver: Receiver,
) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for size in (900_000, 90_000, 90_000, 2_000_000, 1):
        hooks.notify("publish", "a", b'"%b"' % (b"x" * size))
    receiver.gate.set()
    await hooks.close(PATIENCE)
    sizes = [[len(str(e["data"])) for e in json.loads(body)["events"]] for _, body in receiver.got]
    assert sizes == [[1], [900_000, 90_000], [90_000], [2_000_000], [1]]


async def test_events_that_wait_go_in_batches_in_order(receiver: Receiver) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver, webhook_batch=4)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for number in range(1, 10):
        hooks.notify("publish", "a", b"%d" % number)
    receiver.gate.set()
    await hooks.close(PATIENCE)
    assert [event["data"] for event in receiver.events()] == list(range(10))
    assert [len(json.loads(body)["events"]) for _, body in receiver.got] == [1, 4, 4, 1]
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 4


@pytest.mark.parametrize("status", [500, 503, 429, 408])
async def test_a_failed_request_is_tried_again_under_the_same_id(
    receiver: Receiver, status: int
) -> None:
    receiver.answers = [status, status]
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"{}")
    await hooks.close(PATIENCE)
    assert len(receiver.got) == 3
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert (hooks.delivered, hooks.dropped) == (1, 0)


async def test_after_the_last_try_the_events_are_counted_as_dropped(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500] * 3
    hooks = sender(receiver, webhook_attempts=3)
    hooks.start()
    hooks.notify("publish", "a", b'"hush"')
    await receiver.requests(3)
    hooks.notify("publish", "a", b"{}")
    await hooks.close(PATIENCE)
    assert (hooks.delivered, hooks.dropped) == (1, 1)
    assert _logged(caplog, receiver) == [
        ": HTTP 500; sending the request again, up to 2 times",
        ": HTTP 500 at attempt 3 of 3; events dropped: 1",
    ]
    assert "hush" not in caplog.text
    assert SECRET not in caplog.text


async def test_a_receiver_that_rejects_every_request_is_logged_once_and_when_it_accepts_again(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [401, 503, 401, 401]
    hooks = sender(receiver, webhook_batch=1)
    hooks.start()
    for _ in range(4):
        hooks.notify("publish", "a", b"{}")
    await hooks.close(PATIENCE)
    assert (hooks.delivered, hooks.dropped) == (1, 3)
    assert _logged(caplog, receiver) == [
        ": HTTP 401 at attempt 1 of 10; events dropped: 1",
        ": HTTP 503; sending the request again, up to 9 times",
        " accepts requests; further events dropped before: 2",
    ]


async def test_a_receiver_that_is_away_for_two_minutes_loses_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        receiver.answers = [503] if sum(waited) < 120 else []
        await sleep(0)

    receiver.answers = [503]
    hooks = sender(receiver, webhook_backoff=Settings().webhook_backoff)
    monkeypatch.setattr(asyncio, "sleep", pause)
    hooks.start()
    hooks.notify("publish", "a", b"{}")
    await hooks.close(PATIENCE)
    assert (hooks.delivered, hooks.dropped) == (1, 0)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 410])
async def test_a_redirect_is_not_followed_and_a_refusal_is_final(
    receiver: Receiver, status: int
) -> None:
    receiver.answers = [status]
    receiver.headers = {"Location": receiver.url.replace("/hook", "/elsewhere")}
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"{}")
    await hooks.close(PATIENCE)
    assert len(receiver.got) == 1
    assert hooks.dropped == 1


async def test_a_full_queue_drops_counts_and_says_so_once(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver, webhook_queue=3)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for number in range(1, 9):
        hooks.notify("publish", "a", b"%d" % number)
    assert hooks.dropped == 5
    warnings = [each.message for each in caplog.records if "queue is full" in each.message]
    assert len(warnings) == 1
    receiver.gate.set()
    await hooks.close(PATIENCE)
    assert [event["data"] for event in receiver.events()] == [0, 1, 2, 3]


async def test_the_bytes_of_a_queue_are_bounded(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "QUEUE_BYTES", 100_000)
    receiver.gate = asyncio.Event()
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for number in range(1, 9):
        hooks.notify("publish", "a", b'"%d%b"' % (number, b"x" * 30_000))
    assert (hooks.waiting, hooks.dropped) == (3, 5)
    receiver.gate.set()
    await receiver.requests(2)
    hooks.notify("publish", "a", b'"%b"' % (b"y" * 90_000))
    await hooks.close(PATIENCE)
    assert [str(event["data"])[:1] for event in receiver.events()] == ["0", "1", "2", "3", "y"]


async def test_a_receiver_that_is_not_there_or_hangs_does_not_hold_up_the_end(
    receiver: Receiver,
) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver)
    hooks.start()
    hooks.notify("publish", "a", b"{}")
    await receiver.requests(1)
    await hooks.close(0.01)
    gone = sender(Receiver(url="http://127.0.0.1:1/hook"), webhook_attempts=2)
    gone.start()
    gone.notify("publish", "a", b"{}")
    await gone.close(PATIENCE)
    assert gone.dropped == 1


async def test_events_that_are_left_at_the_end_are_counted_and_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.gate = asyncio.Event()
    hooks = sender(receiver, webhook_batch=2)
    hooks.start()
    hooks.notify("publish", "a", b"0")
    await receiver.requests(1)
    for number in range(1, 4):
        hooks.notify("publish", "a", b"%d" % number)
    await hooks.close(0)
    assert (hooks.dropped, hooks.delivered, hooks.waiting) == (4, 0, 0)
    assert f"undelivered events for {receiver.url} at shutdown: 4" in caplog.text


async def test_without_receivers_nothing_is_started() -> None:
    hooks = WebhookSender(load({}))
    hooks.start()
    assert not hooks.wants("publish", "a")
    await hooks.close()
