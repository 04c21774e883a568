"""OpenTelemetry traces of messages that carry a W3C `traceparent`.

A tracing publisher puts its context into `meta`, which passes through unchanged: the spans of the
nodes and of the subscribers are children of the publisher's. The publisher decides what is
sampled: a message without a sampled context costs one search in its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pubsub_server.errors import ServiceError
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from pubsub_server.backplane import Entry, Published

    Result = Published | ServiceError
    Done = Callable[[list[Result]], None]

SYSTEM: Final = "hanzo_pubsub"
_MARK: Final = b'"traceparent"'
_W3C: Final = TraceContextTextMapPropagator()


class Tracing:
    """Creates the spans of one server.

    Args:
        provider: Creates the tracer.
        close: Exports pending spans and shuts down the provider; None if it is shared.
    """

    def __init__(self, provider: TracerProvider, close: Callable[[], object] | None = None) -> None:
        self._tracer = trace.get_tracer("pubsub_server", tracer_provider=provider)
        self._close = close

    def publishing(self, items: Sequence[Draft | ServiceError], done: Done) -> Done:
        """See `interfaces.Tracing`: a span `pubsub.publish` for each message that is traced."""
        spans = [
            self._span(item.meta, item.topic, "pubsub.publish", SpanKind.SERVER)
            if isinstance(item, Draft)
            else None
            for item in items
        ]
        if not any(spans):
            return done

        def answered(results: list[Result]) -> None:
            _end(spans, results)
            done(results)

        return answered

    def delivering(self, entry: Entry, listeners: int, deliver: Callable[[], None]) -> None:
        """Deliver, with a span `pubsub.deliver` until it is written, if it is traced."""
        span: Span | None = None
        if _MARK in entry.body:
            meta = orjson.loads(entry.body).get("meta")
            span = self._start(meta, entry.topic, "pubsub.deliver", SpanKind.INTERNAL)
        deliver()
        if span is not None:
            span.set_attribute("messaging.message.id", entry.id)
            span.set_attribute("hanzo_pubsub.connections", listeners)
            # The writes are at the end of this turn, before this callback.
            asyncio.get_running_loop().call_soon(span.end)

    async def close(self) -> None:
        """Export pending spans."""
        if self._close is not None:
            await asyncio.to_thread(self._close)

    def _span(self, meta: bytes | None, topic: str, name: str, kind: SpanKind) -> Span | None:
        if meta is None or _MARK not in meta:
            return None
        return self._start(orjson.loads(meta), topic, name, kind)

    def _start(self, meta: object, topic: str, name: str, kind: SpanKind) -> Span | None:
        context = _context(meta)
        if context is None:
            return None
        span = self._tracer.start_span(name, context, kind)
        span.set_attribute("messaging.system", SYSTEM)
        span.set_attribute("messaging.destination.name", topic)
        return span


def _context(meta: object) -> Context | None:
    """The context in `meta`, if it is sampled."""
    if not isinstance(meta, Mapping):
        return None
    carrier = {
        name: value
        for name, value in cast("Mapping[str, Any]", meta).items()
        if name in _W3C.fields and isinstance(value, str)
    }
    context = _W3C.extract(carrier)
    found = trace.get_current_span(context).get_span_context()
    return context if found.is_valid and found.trace_flags.sampled else None


def _end(spans: Sequence[Span | None], results: Sequence[Result]) -> None:
    for number, span in enumerate(spans):
        if span is None:
            continue
        result = results[number] if number < len(results) else None
        if isinstance(result, ServiceError):
            span.set_attribute("error.type", result.code)
            span.set_status(Status(StatusCode.ERROR, result.code))
        elif result is None:
            span.set_status(Status(StatusCode.ERROR))
        else:
            span.set_attribute("messaging.message.id", result.id)
            span.set_attribute("hanzo_pubsub.duplicate", result.duplicate)
        span.end()


def open_tracing(version: str) -> Tracing:
    """Traces to the provider of the program, if it has set one, otherwise over OTLP as in `OTEL_…`.

    Raises:
        ImportError: The extra `otel` is not installed.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider as Provider

    there = trace.get_tracer_provider()
    if isinstance(there, Provider):
        return Tracing(there)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    found = OTELResourceDetector().detect().attributes
    own = {"service.name": "hanzo-pubsub", "service.version": version}
    resource = Resource.create({**own, **found})
    provider = Provider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, provider.shutdown)
