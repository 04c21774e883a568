"""Publish: checked, allowed, within the rate, then handed to the backplane.

H-045, H-097 … H-099, H-144.
"""

from __future__ import annotations

import functools
from time import perf_counter
from typing import TYPE_CHECKING, cast

import orjson

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Published
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pubsub_server.hub.attendance import Attendance
    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.connection import Connection

    Result = Published | ServiceError


class Publishing:
    """Performs publishes.

    Args:
        core: The parts of the hub.
        attendance: Takes those that mean presence.
    """

    def __init__(self, core: Core, attendance: Attendance) -> None:
        self._core = core
        self._attendance = attendance

    def one(
        self, identity: Identity, draft: Draft, connection: Connection, *, asked: bool = True
    ) -> Result | Awaitable[list[Result]]:
        """Publish a message alone, what sockets bring most; as `publish` of one item.

        Args:
            identity: Who publishes.
            draft: The message.
            connection: It came by.
            asked: Whether an answer is waited for, so that an unanswered publish is repeated.
        """
        core = self._core
        if core.tracing is not None:
            results = self.publish(identity, [draft], connection, asked=asked)
            return results[0] if isinstance(results, list) else results
        granted, wait = core.rates.take(identity, connection.client_id, 1)
        outcome = (
            self._check(identity, draft, connection)
            if granted
            else self._too_often(identity, draft, wait, batch=False)
        )
        if outcome is not None:
            if isinstance(outcome, ServiceError):
                self._refused(identity, draft, connection, outcome)
            return outcome
        drafts = [draft]
        origin = connection if asked else None
        done = core.backplane.publish(drafts, (identity.kind, identity.user_id), origin)
        if isinstance(done, list):
            self._published(identity, draft, done[0], connection)
            return done[0]
        return self._later(identity, drafts, [None], done, connection)

    def publish(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection | None,
        *,
        batch: bool = False,
        asked: bool = False,
    ) -> list[Result] | Awaitable[list[Result]]:
        """Publish in order; one answer an item. An item that is an error already stays one.

        Args:
            identity: Who publishes.
            items: The messages.
            connection: They came by; None for a request.
            batch: Whether they came as a batch over REST.
            asked: As in `one`.
        """
        origin = connection if asked else None
        tracing = self._core.tracing
        if tracing is not None:
            return tracing.publishing(
                items, functools.partial(self._publish, identity, items, connection, batch, origin)
            )
        return self._publish(identity, items, connection, batch, origin)

    def _publish(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection | None,
        batch: bool,
        origin: Connection | None,
    ) -> list[Result] | Awaitable[list[Result]]:
        core = self._core
        wanted = 0
        for item in items:
            if isinstance(item, Draft):
                wanted += 1
        budget: tuple[int, int] | Awaitable[tuple[int, int]] = (0, 0)
        if wanted and connection is not None:
            budget = core.rates.take(identity, connection.client_id, wanted)
        elif wanted:
            budget = core.rates.share(identity, wanted, batch=batch)
        if isinstance(budget, tuple):
            return self._take(identity, items, connection, batch, origin, *budget)
        return self._when_granted(identity, items, connection, batch, origin, budget)

    async def _when_granted(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection | None,
        batch: bool,
        origin: Connection | None,
        budget: Awaitable[tuple[int, int]],
    ) -> list[Result]:
        results = self._take(identity, items, connection, batch, origin, *await budget)
        return results if isinstance(results, list) else await results

    def _take(
        self,
        identity: Identity,
        items: Sequence[Draft | ServiceError],
        connection: Connection | None,
        batch: bool,
        origin: Connection | None,
        granted: int,
        wait: int,
    ) -> list[Result] | Awaitable[list[Result]]:
        core = self._core
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
            if isinstance(outcome, ServiceError):
                self._refused(identity, item, connection, outcome)
            elif outcome is None:
                drafts.append(item)
            results.append(outcome)
        if not drafts:
            return cast("list[Result]", results)
        sender = (identity.kind, identity.user_id)
        if connection is not None:
            core.echoes.expect(connection, drafts)
        done = core.backplane.publish(drafts, sender, origin)
        if isinstance(done, list):
            return self._join(identity, drafts, results, done, connection)
        return self._later(identity, drafts, results, done, connection)

    async def _later(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        results: list[Result | None],
        done: Awaitable[list[Result]],
        connection: Connection | None,
    ) -> list[Result]:
        began = perf_counter()
        answers = await done
        self._core.stats.answering.observe(perf_counter() - began)
        return self._join(identity, drafts, results, answers, connection)

    def _join(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        results: list[Result | None],
        done: list[Result],
        connection: Connection | None,
    ) -> list[Result]:
        for draft, outcome in zip(drafts, done, strict=True):
            self._published(identity, draft, outcome, connection)
        if len(drafts) == len(results):
            return done
        rest = iter(done)
        return [next(rest) if each is None else each for each in results]

    def _published(
        self,
        identity: Identity,
        draft: Draft,
        outcome: Result,
        connection: Connection | None,
    ) -> None:
        """Count, record and tell what became of a message."""
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
        """An answer that is known already, or None if the backplane must decide."""
        if draft.type.startswith("presence."):
            return self._presence(identity, draft, connection)
        if not self._core.policy.may_publish(identity, draft.topic):
            return ServiceError(
                "forbidden", "the access rules do not allow this publish", topic=draft.topic
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
            return ServiceError(
                "forbidden", "the access rules do not allow this topic", topic=topic
            )
        if connection is None:
            return ServiceError(
                "unsupported",
                "presence belongs to a connection; send `presence.update` on a socket",
                topic=topic,
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
