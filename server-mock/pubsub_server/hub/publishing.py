"""Publishes: checks the message, its permission and the rate, then calls the backplane.

H-045, H-097 … H-099, H-144.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, cast

import orjson

from pubsub_server.backplane import Published
from pubsub_server.errors import ServiceError
from pubsub_server.shared.answers import Answer
from pubsub_server.shared.denials import denial
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.hub.attendance import Attendance
    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.connection import Connection

    Result = Published | ServiceError
    Done = Callable[[list[Result]], None]


logger = logging.getLogger(__name__)


class Publishing:
    """Performs publishes.

    Args:
        core: The parts of the hub.
        attendance: Handles presence messages.
    """

    def __init__(self, core: Core, attendance: Attendance) -> None:
        self._core = core
        self._attendance = attendance

    def publish(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection,
        done: Done,
        *,
        asked: bool = False,
    ) -> None:
        """Publish in order. An item that is already an error is returned as its answer.

        Args:
            identity: The publisher.
            items: The messages.
            connection: The connection that they arrived on.
            done: Called once, with one answer per item: immediately, or when the backplane has
                them.
            asked: Whether the publisher expects an answer, and so repeats an unanswered publish.
        """
        wanted = len(items) if len(items) == 1 else _count(items)
        budget = self._core.rates.take(identity, connection.client_id, wanted) if wanted else (0, 0)
        origin = connection if asked else None
        self._perform(identity, items, connection, done, *budget, origin=origin)

    async def request(
        self, identity: Identity, items: Sequence[Draft | ServiceError], *, batch: bool = False
    ) -> list[Result]:
        """Like `publish`, for a REST request, with the rate budget that all nodes share.

        Args:
            identity: The publisher.
            items: The messages.
            batch: Whether they are a batch.
        """
        wanted = _count(items)
        rates = self._core.rates
        budget = await rates.share(identity, wanted, batch=batch) if wanted else (0, 0)
        answer: Answer[list[Result]] = Answer()
        self._perform(identity, items, None, answer, *budget, batch=batch)
        return await answer

    def _perform(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection | None,
        done: Done,
        granted: int,
        wait: int,
        *,
        batch: bool = False,
        origin: Connection | None = None,
    ) -> None:
        core = self._core
        if core.tracing is not None:
            done = core.tracing.publishing(items, done)
        results: list[Result | None] = []
        drafts: list[Draft] = []
        for item in items:
            if isinstance(item, ServiceError):
                core.count(item)
                results.append(item)
                continue
            outcome: Result | None
            if granted:
                granted -= 1
                outcome = self._check(identity, item, connection)
            else:
                outcome = self._too_often(identity, item, wait, batch=batch)
            if outcome is None:
                drafts.append(item)
            elif isinstance(outcome, ServiceError):
                self._refused(identity, item, connection, outcome)
            results.append(outcome)
        if not drafts:
            done(cast("list[Result]", results))
            return
        if connection is not None:
            core.echoes.expect(connection, drafts)
        # The call has returned, and the answer is outstanding.
        began = 0.0

        def answered(answers: list[Result]) -> None:
            if began:
                core.stats.answering.observe(perf_counter() - began)
            try:
                for draft, outcome in zip(drafts, answers, strict=True):
                    self._published(identity, draft, outcome, connection)
            except Exception:
                # The messages are published, so do not fail: their publisher waits for the answer.
                logger.exception("cannot record a publish")
            if len(drafts) < len(results):
                rest = iter(answers)
                answers = [next(rest) if each is None else each for each in results]
            done(answers)

        sender = (identity.kind, identity.user_id)
        core.backplane.publish(drafts, sender, answered, origin)
        began = perf_counter()

    def _published(
        self,
        identity: Identity,
        draft: Draft,
        outcome: Result,
        connection: Connection | None,
    ) -> None:
        """Count and record the result of a message, and notify webhooks."""
        if isinstance(outcome, ServiceError):
            self._refused(identity, draft, connection, outcome)
            return
        core = self._core
        stats = core.stats
        if outcome.duplicate:
            stats.duplicates += 1
            return
        stats.published += 1
        stats.published_bytes += len(draft.data)
        if core.audit is not None:
            core.note("publish", identity, draft.topic, connection, message_id=outcome.id)
        hooks = core.webhooks
        if hooks is not None and hooks.wants("publish", draft.topic):
            sender = (identity.kind, identity.user_id)
            body = envelope(draft, outcome.id, outcome.timestamp, outcome.seq, sender)
            hooks.notify("publish", draft.topic, body)

    def _refused(
        self,
        identity: Identity,
        draft: Draft,
        connection: Connection | None,
        error: ServiceError,
    ) -> None:
        self._core.count(error)
        self._core.note("publish", identity, draft.topic, connection, refused=error.code)

    def _too_often(
        self, identity: Identity, draft: Draft, wait: int, *, batch: bool
    ) -> ServiceError:
        return ServiceError(
            "rate_limited",
            f"more than {self._core.rates.rate(identity, batch=batch)} publishes per second",
            topic=draft.topic,
            retry_after_ms=wait,
        )

    def _check(
        self, identity: Identity, draft: Draft, connection: Connection | None
    ) -> Result | None:
        """An answer that is already known, or None if the backplane must decide."""
        if draft.type.startswith("presence."):
            return self._presence(identity, draft, connection)
        if not self._core.policy.may_publish(identity, draft.topic):
            return denial(
                self._core.settings, "the access rules do not allow this publish", draft.topic
            )
        for inspector in self._core.inspectors:
            try:
                inspector.inspect(draft)
            except ServiceError as error:
                return error
        return None

    def _presence(self, identity: Identity, draft: Draft, connection: Connection | None) -> Result:
        topic = draft.topic
        if draft.type != "presence.update":
            return ServiceError(
                "forbidden",
                "presence is announced by the server; send `presence.update`",
                topic=topic,
            )
        if not self._core.policy.may_subscribe(identity, topic):
            return denial(self._core.settings, "the access rules do not allow this topic", topic)
        if connection is None:
            return ServiceError(
                "unsupported",
                "presence belongs to a connection; send `presence.update` on a socket",
                topic=topic,
                remedy="Update presence over a WebSocket.",
            )
        data = orjson.loads(draft.data)
        if not isinstance(data, dict):
            return ServiceError(
                "invalid_payload", "`data` of presence must be an object", topic=topic, field="data"
            )
        try:
            id, timestamp = self._attendance.update(
                connection, topic, cast("dict[str, object]", data)
            )
        except ServiceError as error:
            return error
        return Published(id, timestamp, None, False)


def _count(items: Sequence[Draft | ServiceError]) -> int:
    """The number of messages among the items."""
    return sum(isinstance(item, Draft) for item in items)
