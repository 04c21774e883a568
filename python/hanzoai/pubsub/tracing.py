"""OpenTelemetry traces, if a program enables them: `PubSub(tracing=Tracing())`.

The W3C context travels in `meta` of a message (`traceparent`, `tracestate`), which servers pass
through: the spans of subscribers are children of the publisher's.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.payload_models import is_model

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.trace import Span, TracerProvider

    from hanzoai.pubsub.values import Message, Outgoing

SYSTEM: Final = "hanzo_pubsub"


class Tracing:
    """Creates the spans of clients.

    Args:
        tracer_provider: Default: the tracer provider of the program.

    Raises:
        UsageError: `opentelemetry-api` is not installed (the extra `otel`).
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise UsageError(
                "Tracing needs OpenTelemetry.",
                remedy="Install it: pip install 'hanzoai.pubsub[otel]'.",
            ) from None
        self._trace = trace
        self._w3c = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("hanzoai.pubsub", tracer_provider=tracer_provider)

    @contextmanager
    def publishing(self, topic: str, message: Outgoing) -> Generator[Outgoing]:
        """Create a span `pubsub.publish` around a publish, and yield the message with its context.

        A message that already has a ``traceparent`` keeps it.
        """
        with self._span("pubsub.publish", self._trace.SpanKind.PRODUCER, topic):
            yield self.injected(message)

    def injected(self, message: Outgoing) -> Outgoing:
        """Return the message with the current context in ``meta``, unless it has its own."""
        carrier: dict[str, Any] = {}
        self._w3c.inject(carrier)
        if isinstance(message, Publication):
            own = message.meta or {}
            if not carrier or "traceparent" in own:
                return message
            return message.model_copy(update={"meta": {**own, **carrier}})
        if message.__class__ is not dict and is_model(message):
            message = {"data": message}
        # `publish` rejects a value that is not a message.
        get = getattr(message, "get", None)
        meta: object = None if get is None else get("meta") or {}
        if not carrier or not isinstance(meta, Mapping) or "traceparent" in meta:
            return message
        fields = cast("Mapping[str, Any]", message)
        return {**fields, "meta": {**cast("Mapping[str, Any]", meta), **carrier}}

    def current(self) -> Span:
        """Return the span of the running code."""
        return self._trace.get_current_span()

    def failed(self, error: Exception) -> None:
        """Record an exception on the current span, for code that handles it there."""
        span = self.current()
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")

    @contextmanager
    def publishing_many(
        self, messages: Iterable[tuple[str, Outgoing] | Mapping[str, Any] | Publication]
    ) -> Generator[Iterable[tuple[str, Outgoing] | Mapping[str, Any] | Publication]]:
        """Create a span `pubsub.publish` around publishes; each message gets its context."""
        with self._span("pubsub.publish", self._trace.SpanKind.PRODUCER, None) as span:
            sent = [self._item(item) for item in messages]
            span.set_attribute("messaging.batch.message_count", len(sent))
            yield sent

    def _item(
        self, item: tuple[str, Outgoing] | Mapping[str, Any] | Publication
    ) -> tuple[str, Outgoing] | Mapping[str, Any]:
        if isinstance(item, tuple) and len(item) == 2:
            return item[0], self.injected(item[1])
        return cast("Mapping[str, Any]", self.injected(cast("Outgoing", item)))

    @contextmanager
    def processing(self, message: Message) -> Generator[Span]:
        """Create a span `pubsub.process` around the processing of a message.

        It is a child of the publisher's span. Handlers of ``on_message`` and ``respond`` run in one
        automatically. In an iteration, write
        ``async for message in sub: with tracing.processing(message): ...``.
        """
        carrier = {
            name: value
            for name, value in (message.meta or {}).items()
            if name in self._w3c.fields and isinstance(value, str)
        }
        parent = self._w3c.extract(carrier) if carrier else None
        kind = self._trace.SpanKind.CONSUMER
        with self._span("pubsub.process", kind, message.topic, parent) as span:
            span.set_attribute("messaging.message.id", message.id)
            yield span

    def handler(self, function: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """Return a handler that processes each message in its own span."""

        async def traced(message: Message) -> None:
            with self.processing(message):
                result = function(message)
                if inspect.isawaitable(result):
                    await result

        return traced

    @contextmanager
    def _span(self, name: str, kind: Any, topic: str | None, parent: Any = None) -> Generator[Span]:
        with self._tracer.start_as_current_span(name, context=parent, kind=kind) as span:
            span.set_attribute("messaging.system", SYSTEM)
            if topic is not None:
                span.set_attribute("messaging.destination.name", topic)
            yield span
