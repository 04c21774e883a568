"""Traces from the publisher through the nodes to the subscriber."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from hanzoai.pubsub import (
    InvalidOption,
    Message,
    PermissionDenied,
    Published,
    PubSub,
    PubSubClient,
    ReplyError,
)
from hanzoai.pubsub.tracing import Tracing
from pubsub_server.testing import running_server

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from pubsub_server.testing import RunningServer

BOUND = 60
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of everything in this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def client(node: RunningServer, tracing: Tracing | None = None) -> PubSubClient:
    token = node.service_token("bot")
    return PubSubClient(node.ws, rest_url=node.http, token=token, tracing=tracing)


def by_kind(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.kind.name: span for span in spans.get_finished_spans()}


def parents(spans: InMemorySpanExporter) -> dict[str, str | None]:
    kinds = {s.context.span_id: s.kind.name for s in spans.get_finished_spans() if s.context}
    return {
        span.kind.name: kinds.get(span.parent.span_id) if span.parent else None
        for span in spans.get_finished_spans()
    }


async def test_spans_in_a_handler_of_the_blocking_client_belong_to_its_trace(
    spans: InMemorySpanExporter,
) -> None:
    def use(node: RunningServer) -> None:
        options: Any = {"rest_url": node.http, "token": node.service_token(), "tracing": Tracing()}
        with PubSub(node.ws, **options) as ps, ps.subscribe("demo.y") as answers:

            def handle(message: Message) -> None:
                ps.publish("demo.y", {"data": message.data})

            ps.subscribe("demo.x", on_message=handle).wait()
            ps.publish("demo.x", {"data": 1})
            assert answers.next(BOUND).data == 1

    async with running_server() as node:
        await asyncio.to_thread(use, node)
    found = {
        (span.name, (span.attributes or {}).get("messaging.destination.name")): span
        for span in spans.get_finished_spans()
    }
    answer, handled = found["pubsub.publish", "demo.y"], found["pubsub.process", "demo.x"]
    assert answer.parent is not None
    assert handled.context is not None
    assert answer.parent.span_id == handled.context.span_id


@pytest.mark.parametrize("via", ["auto", "rest"])
async def test_one_trace_goes_from_the_publisher_over_the_node_to_the_handler(
    spans: InMemorySpanExporter, via: Any
) -> None:
    handled = asyncio.Event()
    inside: list[int] = []

    def handle(message: Message) -> None:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        handled.set()

    async with (
        asyncio.timeout(BOUND),
        running_server(tracing=True) as node,
        client(node, Tracing()) as ps,
    ):
        await ps.subscribe("demo.x", on_message=handle)
        published = await ps.publish("demo.x", {"data": 1, "meta": {"own": 1}}, via=via)
        await handled.wait()
        await ps.close()
    found = by_kind(spans)
    assert {kind: span.name for kind, span in found.items()} == {
        "PRODUCER": "pubsub.publish",
        "SERVER": "pubsub.publish",
        "INTERNAL": "pubsub.deliver",
        "CONSUMER": "pubsub.process",
    }
    assert parents(spans) == {
        "PRODUCER": None,
        "SERVER": "PRODUCER",
        "INTERNAL": "PRODUCER",
        "CONSUMER": "PRODUCER",
    }
    assert len(spans.get_finished_spans()) == 4
    traces = {s.context.trace_id for s in spans.get_finished_spans() if s.context}
    assert traces == set(inside)
    delivered = dict(found["INTERNAL"].attributes or {})
    assert delivered == {
        "messaging.system": "hanzo_pubsub",
        "messaging.destination.name": "demo.x",
        "messaging.message.id": published.id,
        "hanzo_pubsub.connections": 1,
    }


async def test_the_trace_context_is_added_to_the_existing_meta(
    spans: InMemorySpanExporter,
) -> None:
    tracing = Tracing()
    async with (
        asyncio.timeout(BOUND),
        running_server() as node,
        client(node, tracing) as ps,
    ):
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": 1, "meta": {"own": 1}})
        await ps.publish("demo.x", {"data": 2, "meta": {"traceparent": PARENT}})
        await ps.publish_many([("demo.x", {"data": 3}), {"topic": "demo.x", "data": 4}])
        with trace.get_tracer_provider().get_tracer("t").start_as_current_span("mine") as mine:
            async with ps.batch() as batch:
                batch.publish("demo.x", {"data": 5})
        metas = [(await anext(sub)).meta or {} for _ in range(5)]
        last = Message(id="m", topic="demo.x", type="x", data=1, timestamp=1, meta=metas[1])
        with tracing.processing(last) as span:
            assert f"{span.get_span_context().trace_id:032x}" in PARENT
    assert metas[0]["own"] == 1
    assert metas[1] == {"traceparent": PARENT}
    assert metas[2] == metas[3]
    assert all(meta["traceparent"].startswith("00-") for meta in metas)
    assert f"{mine.get_span_context().trace_id:032x}" in metas[4]["traceparent"]


async def test_publish_many_takes_and_rejects_the_same_with_and_without_traces(
    spans: InMemorySpanExporter,
) -> None:
    async with asyncio.timeout(BOUND), running_server() as node:
        for tracing in (None, Tracing()):
            async with client(node, tracing) as ps:
                given: Any
                for given in (5, None, {"topic": "demo.x", "data": 1}):
                    with pytest.raises(InvalidOption, match="messages") as caught:
                        await ps.publish_many(given)
                    assert caught.value.field == "messages"
                given = (("demo.x", {"data": number}) for number in range(3))
                results = await ps.publish_many(given)
                assert [type(result) for result in results] == [Published] * 3
    counts = [
        (span.attributes or {}).get("messaging.batch.message_count")
        for span in spans.get_finished_spans()
    ]
    # What is not a list is rejected before the span.
    assert counts == [3]


async def test_a_batch_has_one_span_that_is_the_parent_of_its_messages(
    spans: InMemorySpanExporter,
) -> None:
    tracer = trace.get_tracer_provider().get_tracer("t")
    async with (
        asyncio.timeout(BOUND),
        running_server() as node,
        client(node, Tracing()) as ps,
        ps.subscribe("demo.x") as sub,
    ):
        async with ps.batch() as batch:
            batch.publish("demo.x", {"data": 1})
            batch.publish("demo.x", {"data": 2})
            with tracer.start_as_current_span("mine"):
                batch.publish("demo.x", {"data": 3})
        metas = [(await anext(sub)).meta or {} for _ in range(3)]
    found = {span.name: span for span in spans.get_finished_spans()}
    assert sorted(found) == ["mine", "pubsub.publish"]
    published, mine = found["pubsub.publish"].context, found["mine"].context
    assert published is not None
    assert mine is not None
    assert [meta["traceparent"].split("-")[2] for meta in metas] == [
        f"{published.span_id:016x}",
        f"{published.span_id:016x}",
        f"{mine.span_id:016x}",
    ]
    assert (found["pubsub.publish"].attributes or {})["messaging.batch.message_count"] == 3


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_reply_belongs_to_the_trace_of_its_request(
    spans: InMemorySpanExporter, *, blocking: bool
) -> None:
    inside: list[int] = []

    def answer(request: Message) -> int:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if request.data == "fail":
            raise ValueError("no such order")
        return 1

    async def use(node: RunningServer) -> None:
        async with client(node, Tracing()) as ps, ps.respond("demo.x", answer):
            assert (await ps.request("demo.x", 0)).data == 1
            with pytest.raises(ReplyError):
                await ps.request("demo.x", "fail")

    def block(node: RunningServer) -> None:
        token = node.service_token("bot")
        with (
            PubSub(node.ws, rest_url=node.http, token=token, tracing=Tracing()) as ps,
            ps.respond("demo.x", answer),
        ):
            assert ps.request("demo.x", 0).data == 1
            with pytest.raises(ReplyError):
                ps.request("demo.x", "fail")

    async with asyncio.timeout(BOUND), running_server() as node:
        await (asyncio.to_thread(block, node) if blocking else use(node))
    handled = [span for span in spans.get_finished_spans() if span.name == "pubsub.process"]
    assert [span.context.span_id for span in handled if span.context] == inside
    assert [span.status.status_code.name for span in handled] == ["UNSET", "ERROR"]
    assert [[event.name for event in span.events] for span in handled] == [[], ["exception"]]
    by_id = {s.context.span_id: s for s in spans.get_finished_spans() if s.context}
    for span in handled:
        assert span.parent is not None
        assert by_id[span.parent.span_id].name == "pubsub.publish"
    replies = [
        span
        for span in spans.get_finished_spans()
        if span.name == "pubsub.publish"
        and span.parent is not None
        and span.parent.span_id in inside
    ]
    assert len(replies) == 2


async def test_a_refused_publish_is_an_error_on_both_sides(spans: InMemorySpanExporter) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(tracing=True) as node,
        PubSubClient(node.ws, token=node.token("alice"), tracing=Tracing()) as ps,
    ):
        with pytest.raises(PermissionDenied):
            await ps.publish("org.other.x", {"data": 1})
    statuses = {s.kind.name: s.status.status_code.name for s in spans.get_finished_spans()}
    assert statuses == {"SERVER": "ERROR", "PRODUCER": "ERROR"}
    assert (by_kind(spans)["SERVER"].attributes or {})["error.type"] == "forbidden"


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"traceparent": 7},
        {"traceparent": "hello"},
        {"traceparent": PARENT[:-2] + "00"},
        {"nested": {"traceparent": PARENT}},
    ],
)
async def test_a_message_without_a_sampled_context_creates_no_span(
    spans: InMemorySpanExporter, meta: Any
) -> None:
    async with asyncio.timeout(BOUND), running_server(tracing=True) as node, client(node) as ps:
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": {"traceparent": PARENT}, "meta": meta})
        assert (await anext(sub)).meta == meta
    assert spans.get_finished_spans() == ()


async def test_a_server_that_does_not_trace_passes_the_context_on(
    spans: InMemorySpanExporter,
) -> None:
    async with asyncio.timeout(BOUND), running_server() as node, client(node) as ps:
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": 1, "meta": {"traceparent": PARENT}})
        assert (await anext(sub)).meta == {"traceparent": PARENT}
    assert spans.get_finished_spans() == ()


async def test_a_publisher_that_does_not_sample_costs_no_span_anywhere_else(
    spans: InMemorySpanExporter,
) -> None:
    tracing = Tracing(TracerProvider(sampler=ALWAYS_OFF))
    async with (
        asyncio.timeout(BOUND),
        running_server(tracing=True) as node,
        client(node, tracing) as ps,
    ):
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": 1})
        flags = int(((await anext(sub)).meta or {})["traceparent"][-2:], 16)
        assert not flags & 1
    assert spans.get_finished_spans() == ()


async def test_the_blocking_client_traces_in_the_context_of_the_calling_thread(
    spans: InMemorySpanExporter,
) -> None:
    async with asyncio.timeout(BOUND), running_server(tracing=True) as node:
        token = node.service_token()

        def work() -> None:
            tracer = trace.get_tracer_provider().get_tracer("t")
            with (
                PubSub(node.ws, token=token, tracing=Tracing()) as ps,
                tracer.start_as_current_span("mine"),
            ):
                ps.publish("demo.x", {"data": 1})

        await asyncio.to_thread(work)
    producer = by_kind(spans)["PRODUCER"]
    (mine,) = [span for span in spans.get_finished_spans() if span.name == "mine"]
    assert producer.parent is not None
    assert mine.context is not None
    assert producer.parent.span_id == mine.context.span_id


async def test_spans_go_to_a_collector_over_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[ExportTraceServiceRequest] = []

    async def take(request: web.Request) -> web.Response:
        received.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    try:
        async with asyncio.timeout(BOUND), running_server(tracing=True) as node, client(node) as ps:
            await ps.publish("demo.x", {"data": 1, "meta": {"traceparent": PARENT}})
    finally:
        await runner.cleanup()
    (found,) = [
        (resource, span)
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    resource, span = found
    assert span.trace_id.hex() in PARENT
    assert span.parent_span_id.hex() in PARENT
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "hanzo-pubsub"
    assert names["deployment.environment"] == "test"
