"""Queries about topics: a page of history, the members, the list of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.backplane import Page, TopicReport
from pubsub_server.errors import ADMINISTRATOR_REMEDY, ServiceError
from pubsub_server.shared.denials import denial

if TYPE_CHECKING:
    from pubsub_server.hub.attendance import Attendance
    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import Identity, Member

TOPICS_MAX: Final = 10_000
"""Maximum topics of one answer."""


class Queries:
    """Read-only queries, with their permission checks.

    Args:
        core: The parts of the hub.
        attendance: Knows the members.
    """

    def __init__(self, core: Core, attendance: Attendance) -> None:
        self._core = core
        self._attendance = attendance

    async def history(
        self,
        identity: Identity,
        topic: str,
        *,
        since: int | None,
        before: str | int | None,
        after: int | None,
        limit: int | None,
    ) -> Page:
        """See `service.Service`."""
        self._may_read(identity, topic)
        settings = self._core.settings
        limit = settings.history_page_default if limit is None else limit
        if not 1 <= limit <= settings.history_page_max:
            raise ServiceError(
                "invalid_option",
                f"`limit` is 1 to {settings.history_page_max}",
                field="limit",
            )
        if after is not None and before is not None:
            raise ServiceError(
                "invalid_option",
                "`after` cannot be used together with `before` or `before_seq`",
                field="after",
            )
        await self._turn()
        return await self._core.backplane.logs.page(
            topic, since=since, before=before, after=after, limit=limit
        )

    async def presence(self, identity: Identity, topic: str) -> list[Member]:
        """See `service.Service`."""
        self._may_read(identity, topic)
        await self._turn()
        return await self._attendance.members(topic)

    async def topics(
        self, identity: Identity, *, prefix: str, limit: int
    ) -> tuple[list[TopicReport], bool]:
        """See `service.Service`."""
        core = self._core
        if not core.policy.may_administer(identity):
            raise ServiceError(
                "forbidden", "only an administrator may list topics", remedy=ADMINISTRATOR_REMEDY
            )
        if not 1 <= limit <= TOPICS_MAX:
            raise ServiceError("invalid_option", f"`limit` is 1 to {TOPICS_MAX}", field="limit")
        stored = await core.backplane.logs.reports(prefix, limit + 1)
        known = {report.topic: report for report in stored}
        for topic in core.router.exact_topics():
            if topic.startswith(prefix) and topic not in known:
                known[topic] = TopicReport(topic, 0, 0, None, None)
        chosen = sorted(known)[: limit + 1]
        reports = [
            TopicReport(
                name,
                len(core.router.route(name)),
                known[name].messages,
                known[name].position,
                known[name].last_message_at,
            )
            for name in chosen[:limit]
        ]
        return reports, len(chosen) > limit

    async def _turn(self) -> None:
        if not self._core.turns.free:
            await self._core.turns.wait()

    def _may_read(self, identity: Identity, topic: str) -> None:
        try:
            validate_topic(topic)
        except InvalidTopic as error:
            raise ServiceError("invalid_topic", error.message, topic=topic, field="topic") from None
        if not self._core.policy.may_subscribe(identity, topic):
            raise denial(
                self._core.settings, "the access rules do not allow reading this topic", topic
            )
