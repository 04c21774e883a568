"""The applications of the guides to frameworks and token streams work in their frameworks."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hanzoai.pubsub import PubSub, PubSubClient
from hanzoai.pubsub.streams import stream_reader, stream_writer
from hanzoai.pubsub.testing import ThreadedServer
from tests.docs.blocks import ROOT, blocks
from tests.docs.model import model_api
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOWN = {
    block.title: block.text
    for page in ("integrations.md", "streams.md", "streaming-chat.md", "ai-sdk.md")
    for block in blocks(ROOT / "docs" / page)
    if block.title
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedServer]:
    """Run a server, and put its addresses and key into the environment of the applications."""
    key = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "pubsub-key.pem").write_bytes(key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with ThreadedServer() as running:
        monkeypatch.setenv("HANZO_PUBSUB_URL", running.ws)
        monkeypatch.setenv("HANZO_PUBSUB_REST_URL", running.http)
        monkeypatch.setenv(
            "HANZO_PUBSUB_TOKEN", running.token("shop", kind="service", sessions_owned=["abc"])
        )
        yield running


def application(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the sample with this title as a module."""
    (folder / f"{name}.py").write_text(SHOWN[f"{name}.py"], encoding="utf-8")
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def accepted(token: str, keys: dict[str, Any]) -> dict[str, Any]:
    """The claims of a token, checked with the settings of the server in docs/tokens.md."""
    return jwt.decode(
        token,
        jwt.PyJWKSet.from_dict(keys)["1"],
        algorithms=["EdDSA"],
        issuer="https://app.example",
        audience="pubsub",
    )


def unchanged(function: Any) -> Any:
    return function


def shipped(server: ThreadedServer) -> list[object]:
    with PubSub(**server.options, token=server.token("reader")) as ps:
        return [message.data for message in ps.history("demo.orders")]


def write_answer(server: ThreadedServer) -> None:
    token = server.token("writer", kind="service")
    with (
        PubSub(**server.options, token=token) as ps,
        stream_writer(ps, "demo.chat.abc") as writer,
    ):
        writer.write("Sunny")


def django_settings() -> None:
    # Django is not typed.
    django: Any = importlib.import_module("django")
    settings: Any = importlib.import_module("django.conf").settings
    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(DATABASES={"default": database}, ROOT_URLCONF="urls", ALLOWED_HOSTS="*")
        django.setup()


async def test_fastapi_publishes_and_signs_tokens(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = application("fastapi_app", tmp_path, monkeypatch)
    transport = httpx.ASGITransport(app=module.app)
    async with (
        module.lifespan(module.app),
        http_client(transport=transport, base_url="http://app") as http,
    ):
        assert (await http.post("/orders/7/ship")).json()["id"].startswith("msg_")
        token = (await http.post("/pubsub-token")).json()["token"]
        keys = (await http.get("/.well-known/jwks.json")).json()
    assert accepted(token, keys)["sub"] == "alice"
    assert shipped(server) == [{"order": "7"}]


async def test_a_page_with_htmx_gets_escaped_html_and_continues_after_a_lost_connection(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = application("htmx_app", tmp_path, monkeypatch)
    async with asyncio.timeout(60), module.lifespan(module.app):
        ps = module.app.state.pubsub
        seqs = [
            (await ps.publish("demo.room.lobby", {"data": {"text": text}})).seq
            for text in ("<b>one</b>\ntwo", "three")
        ]
        first = (await module.events("lobby")).body_iterator
        again = (await module.events("lobby", seqs[0])).body_iterator
        assert await anext(first) == (
            f"id: {seqs[0]}\ndata: <p>&lt;b&gt;one&lt;/b&gt;\ndata: two</p>\n\n"
        )
        assert await anext(again) == f"id: {seqs[1]}\ndata: <p>three</p>\n\n"
        await first.aclose()
        await again.aclose()


def test_flask_publishes_and_signs_tokens(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = application("flask_app", tmp_path, monkeypatch)
    http = module.app.test_client()
    assert http.post("/orders/8/ship").get_json()["id"].startswith("msg_")
    answer = http.post("/pubsub-token").get_json()
    assert set(answer) == {"token", "expiresAt"}  # what `getToken` of typescript.md reads
    keys = http.get("/.well-known/jwks.json").get_json()
    assert accepted(answer["token"], keys)["sub"] == "alice"
    write_answer(server)
    assert "Sunny" in http.get("/answers/abc").text
    module.pubsub().close()
    assert shipped(server) == [{"order": "8"}]


def test_django_publishes_once_and_after_the_commit(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    django_settings()
    transaction: Any = importlib.import_module("django.db.transaction")
    requests: Any = importlib.import_module("django.test").RequestFactory()
    module = application("django_views", tmp_path, monkeypatch)
    before: list[object] = []
    for _ in range(2):
        with transaction.atomic():
            answer = module.ship(requests.post("/"), "9")
            assert json.loads(answer.content) == {"order": "9"}
            before.append(shipped(server))
    module.pubsub().close()
    assert before == [[], [{"order": "9"}]]
    assert shipped(server) == [{"order": "9"}]


async def test_django_signs_tokens_and_serves_an_answer(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    django_settings()
    views = application("django_views", tmp_path, monkeypatch)
    answers = application("django_answers", tmp_path, monkeypatch)
    application("urls", tmp_path, monkeypatch)
    django_test: Any = importlib.import_module("django.test")
    http = django_test.Client(enforce_csrf_checks=True)
    write_answer(server)

    def use_routes() -> bytes:
        token = http.post("/pubsub-token").json()
        assert set(token) == {"token", "expiresAt"}
        assert accepted(token["token"], http.get("/.well-known/jwks.json").json())["sub"] == "alice"
        return b"".join(http.get("/answers/abc").streaming_content)

    assert b"Sunny" in await asyncio.to_thread(use_routes)
    request = django_test.RequestFactory().get("/")
    response = await answers.answer_async(request, "abc")
    assert b"Sunny" in b"".join([part async for part in response])
    await answers.client().close()
    views.pubsub().close()


def test_a_celery_task_publishes_in_a_pool_that_starts_no_process(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pools of threads and of gevent send no signal when they start. The stand-in sends none.
    celery = MagicMock()
    celery.Celery.return_value.task.return_value = unchanged
    signals = MagicMock()
    for name in ("worker_process_init", "worker_process_shutdown"):
        getattr(signals, name).connect = unchanged
    monkeypatch.setitem(sys.modules, "celery", celery)
    monkeypatch.setitem(sys.modules, "celery.signals", signals)
    module = application("celery_tasks", tmp_path, monkeypatch)
    task = SimpleNamespace(request=SimpleNamespace(id="1"))
    for _ in range(2):  # the second call is a retry
        module.render(task, "a.pdf")
    module.stop()
    with PubSub(**server.options, token=server.token("reader")) as ps:
        percents = [message.data["percent"] for message in ps.history("demo.progress")]
    assert sorted(percents) == [0, 50, 100]


async def test_fastapi_streams_an_answer_of_a_model_and_serves_it_over_http(
    server: ThreadedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_api() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        route = application("route", tmp_path, monkeypatch)
        question = {"id": "abc", "messages": [{"parts": [{"text": "Weather?"}]}]}
        async with (
            route.lifespan(route.app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app=route.app)) as http,
        ):
            stream = (await http.post("http://app/api/chat", json=question)).json()["stream"]
            async with asyncio.timeout(60), stream_reader(route.ps, "demo.chat.abc") as reader:
                final = await reader.final()
                followed = reader.id
        answers = application("answers", tmp_path, monkeypatch)
        async with (
            answers.lifespan(answers.app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app=answers.app)) as http,
        ):
            events = (await http.get("http://app/answers/abc")).text
    assert (followed, final.status) == (stream, "complete")
    assert final.text
    assert final.text in events


@pytest.mark.parametrize("name", ["backend", "route"])
async def test_an_answer_whose_model_fails_ends_for_its_readers_and_is_logged(
    name: str,
    server: ThreadedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    program = application(name, tmp_path, monkeypatch)
    model = MagicMock(side_effect=RuntimeError("The model is overloaded."))
    model.responses.create = model
    monkeypatch.setattr(program, "model", model)
    async with asyncio.timeout(60), PubSubClient() as ps:
        writer = stream_writer(ps, "demo.chat.abc")
        await program.answer(writer, "Weather?")
        async with stream_reader(ps, "demo.chat.abc", id=writer.id) as reader:
            final = await reader.final()
    assert (final.status, final.reason) == ("aborted", "error")
    assert f"The answer {writer.id} has failed" in caplog.text
    assert "The model is overloaded." in caplog.text
