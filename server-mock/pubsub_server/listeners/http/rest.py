"""The REST calls of HIP-56 and the additional ones: they call the hub and return JSON."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, cast

import orjson
from aiohttp import web

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_pattern
from pubsub_server.errors import ADMINISTRATOR_REMEDY, ServiceError
from pubsub_server.listeners.http import requests
from pubsub_server.settings import documents
from pubsub_server.shared import codec
from pubsub_server.shared.member_lists import encode_members
from pubsub_server.shared.position_requests import decode_positions
from pubsub_server.shared.publications import decode_publication

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.access.policy import Policy
    from pubsub_server.backplane import Page, Published, TopicReport
    from pubsub_server.interfaces import ConnectionReport, Identity, Member, PositionList
    from pubsub_server.service import FaultDoor, Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.requests import Draft, PositionsRequest

FRAME_MARGIN: Final = 16_384
"""Maximum bytes of a publish request in addition to its `data`."""

MAX_FAULT: Final = 65_536
"""Maximum bytes of a request for a fault."""

MAX_POSITIONS: Final = 2_097_152
"""Maximum bytes of a request for positions: room for 10,000 topics in `after`."""

TOPICS_DEFAULT: Final = 100
TOPICS_MAX: Final = 1_000
CONNECTIONS_DEFAULT: Final = 100
CONNECTIONS_MAX: Final = 1_000
CLIENT_ID_MAX: Final = 64

_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{0,255}", re.ASCII)
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)


class RestApi:
    """Handlers of the REST calls.

    Args:
        service: The hub.
        policy: The access rules, for `GET /v1/access`.
        settings: Limits and deadlines.
    """

    def __init__(self, service: Service, policy: Policy, settings: Settings) -> None:
        self._service = service
        self._policy = policy
        self._settings = settings

    async def publish(self, request: web.Request) -> web.Response:
        """`POST /v1/topics/{topic}/messages`: H-070, H-071."""
        identity = await requests.identify(self._service, request)
        draft = await self._draft(request, requests.topic(request))
        (result,) = await self._service.publish(identity, [draft])
        if isinstance(result, ServiceError):
            raise result
        return _json(codec.publish_result(result), 200 if result.duplicate else 201)

    async def batch(self, request: web.Request) -> web.Response:
        """`POST /v1/messages:batch`: one result per item, in order."""
        identity = await requests.identify(self._service, request)
        items = await self._items(request)
        drafts = [item for item in items if not isinstance(item, ServiceError)]
        done = await self._service.publish(identity, drafts, batch=True) if drafts else []
        if identity.bulk and done and all(map(_is_limited, done)):
            raise self._wait_for(identity, done)
        outcomes = iter(done)
        results = [
            codec.publish_result(item if isinstance(item, ServiceError) else next(outcomes))
            for item in items
        ]
        return _json({"results": results})

    async def history(self, request: web.Request) -> web.Response:
        """`GET /v1/topics/{topic}/history`: H-072."""
        identity = await requests.identify_reader(self._service, request)
        topic = requests.topic(request)
        before = requests.text(request, "before", 128) or None
        before_seq = requests.integer(request, "before_seq")
        page = await self._service.history(
            identity,
            topic,
            since=requests.integer(request, "since"),
            before=before if before_seq is None else before_seq,
            after=requests.integer(request, "after"),
            limit=requests.integer(request, "limit", 1, self._settings.history_page_max),
        )
        return _response(_page(page))

    async def positions(self, request: web.Request) -> web.Response:
        """`POST /v1/positions`: the positions of logs, immediately or when one changes."""
        identity = await requests.identify(self._service, request)
        wanted = await self._wanted(request)
        found = await self._service.positions(identity, wanted, requests.connection(request).gone)
        return _json(_positions(found))

    async def presence(self, request: web.Request) -> web.Response:
        """`GET /v1/topics/{topic}/presence`: H-073."""
        identity = await requests.identify_reader(self._service, request)
        members = await self._service.presence(identity, requests.topic(request))
        return _response(
            encode_members(
                lambda some: orjson.dumps({"members": some}), [_member(each) for each in members]
            )
        )

    async def occupancy(self, request: web.Request) -> web.Response:
        """`GET /v1/topics/{topic}/occupancy`: the number of members and of users."""
        identity = await requests.identify(self._service, request)
        members = await self._service.presence(identity, requests.topic(request))
        users = {member.user_id or member.client_id for member in members}
        return _json({"members": len(members), "users": len(users)})

    async def topics(self, request: web.Request) -> web.Response:
        """`GET /v1/topics`: H-074, H-075."""
        identity = await requests.identify(self._service, request)
        prefix = requests.text(request, "prefix") or ""
        if not _PREFIX.fullmatch(prefix):
            raise ServiceError(
                "invalid_option",
                "`prefix` has letters, digits, `_`, `-` and dots, at most 255",
                field="prefix",
                remedy="Pass the beginning of topic names, without wildcards.",
            )
        limit = requests.integer(request, "limit", 1, TOPICS_MAX) or TOPICS_DEFAULT
        reports, more = await self._service.topics(identity, prefix=prefix, limit=limit)
        return _json({"topics": [_report(report) for report in reports], "has_more": more})

    async def connections(self, request: web.Request) -> web.Response:
        """`GET /v1/connections`: open connections of this node."""
        identity = await requests.identify(self._service, request)
        reports, total = await self._service.connections(
            identity,
            user=requests.text(request, "user"),
            topic=requests.text(request, "topic"),
            limit=requests.integer(request, "limit", 1, CONNECTIONS_MAX) or CONNECTIONS_DEFAULT,
        )
        return _json({"connections": [_connection(each) for each in reports], "total": total})

    async def cut(self, request: web.Request) -> web.Response:
        """`DELETE /v1/connections/{client_id}`."""
        identity = await requests.identify(self._service, request)
        client_id = request.match_info["client_id"]
        if len(client_id) > CLIENT_ID_MAX:
            raise ServiceError("not_found", "a connection id has fewer characters")
        self._service.cut(identity, client_id, requests.caller(request))
        return web.Response(status=204, headers={"Cache-Control": "no-store"})

    async def session(self, request: web.Request) -> web.Response:
        """`GET /v1/session?client_id=C`: the content of `auth.ok` on a WebSocket."""
        identity = await requests.identify(self._service, request)
        ok = self._service.session(identity, requests.text(request, "client_id", 64))
        return _json(
            _present(
                client_id=ok.client_id,
                user_id=ok.user_id,
                version=ok.version,
                features=list(ok.features),
                expires_at=ok.expires_at,
                server_time=ok.server_time,
                limits=dict(ok.limits),
                node=ok.node,
            )
        )

    async def access(self, request: web.Request) -> web.Response:
        """`GET /v1/access?topic=T`: the caller's permissions on a topic, and the deciding rule."""
        identity = await requests.identify(self._service, request)
        pattern = requests.text(request, "topic")
        if pattern is None:
            raise requests.missing("topic")
        try:
            validate_pattern(pattern)
        except InvalidTopic as error:
            raise ServiceError(
                "invalid_topic", error.message, topic=pattern, field="topic"
            ) from None
        access = self._policy.explain(identity, pattern)
        return _json(
            _present(
                topic=pattern,
                subscribe=access.subscribe,
                publish=access.publish,
                rule=access.rule,
                reason=access.reason,
            )
        )

    def faults(self, faults: FaultDoor) -> Callable[[web.Request], Awaitable[web.Response]]:
        """`POST /v1/faults`, for tests: an admin injects a fault; see `faults.Fault`."""

        async def inject(request: web.Request) -> web.Response:
            identity = await requests.identify(self._service, request)
            if not self._policy.may_administer(identity):
                raise ServiceError(
                    "forbidden",
                    "only an administrator may inject faults",
                    remedy=ADMINISTRATOR_REMEDY,
                )
            body = await requests.json_object(
                request, MAX_FAULT, self._settings.body_timeout / 1000
            )
            return _json(faults.perform(body))

        return inject

    def _wait_for(
        self, identity: Identity, done: Sequence[Published | ServiceError]
    ) -> ServiceError:
        """The error for a bulk batch that was rejected as a whole, with the time to retry."""
        rate = self._service.session(identity).limits["bulk_rate"]
        most = rate * self._settings.publish_burst // 1000
        wait = math.ceil(min(len(done), max(1, most)) * 1000 / rate)
        detail = f"more than {rate:,} publishes per second in batches; nothing was published"
        return ServiceError("rate_limited", detail, retry_after_ms=wait)

    # The request may wait, and would keep its body in memory. So only these have it.

    async def _draft(self, request: web.Request, topic: str) -> Draft:
        limit = self._settings.max_payload + FRAME_MARGIN
        body = await requests.json_object(request, limit, self._settings.body_timeout / 1000)
        if body.get("topic", topic) != topic:
            raise ServiceError(
                "invalid_frame", "`topic` of the body is not that of the address", field="topic"
            )
        key = _idempotency_key(request, body)
        if key is not None:
            body = {**body, "id": key}
        return decode_publication(body, topic=topic, max_payload=self._settings.max_payload)

    async def _items(self, request: web.Request) -> list[Draft | ServiceError]:
        settings = self._settings
        body = await requests.json_object(
            request, settings.max_batch_bytes, settings.body_timeout / 1000, self._service.turn
        )
        messages = documents.sequence(body.get("messages"))
        if messages is None or not 0 < len(messages) <= settings.max_batch:
            raise ServiceError(
                "invalid_frame",
                f"`messages` must be a list of 1 to {settings.max_batch} items",
                field="messages",
            )
        return [self._item(message, f"messages.{n}") for n, message in enumerate(messages)]

    async def _wanted(self, request: web.Request) -> PositionsRequest:
        seconds = self._settings.body_timeout / 1000
        return decode_positions(await requests.json_object(request, MAX_POSITIONS, seconds))

    def _item(self, message: object, field: str) -> Draft | ServiceError:
        if not isinstance(message, dict):
            return ServiceError("invalid_frame", f"`{field}` must be an object", field=field)
        item = cast("dict[str, object]", message)
        try:
            return decode_publication(item, field=field, max_payload=self._settings.max_payload)
        except ServiceError as error:
            return error


def _idempotency_key(request: web.Request, body: Mapping[str, object]) -> str | None:
    values = request.headers.getall("Idempotency-Key", [])
    if not values:
        return None
    key = values[0].strip().strip('"')
    if len(values) > 1 or not _KEY.fullmatch(key):
        raise ServiceError(
            "invalid_option",
            "Idempotency-Key is one value of 1 to 128 visible ASCII characters",
            field="Idempotency-Key",
            remedy="Give the id of the message, for example a UUID.",
        )
    if body.get("id") not in (None, key):
        raise ServiceError(
            "invalid_option",
            "Idempotency-Key and `id` of the body differ; send one of them",
            field="Idempotency-Key",
            remedy="Leave one of the two out.",
        )
    return key


def _json(body: Mapping[str, object], status: int = 200) -> web.Response:
    return _response(orjson.dumps(body), status)


def _response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(
        body=body,
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _page(page: Page) -> bytes:
    fields: dict[str, object] = {"has_more": page.has_more}
    if page.position is not None:
        fields["position"] = page.position
    if page.truncated:
        fields["truncated"] = True
    if page.reset:
        fields["reset"] = True
    # An encoder reallocates megabytes again and again, which fragments the memory.
    return b'{"messages":[%b],%b' % (b",".join(page.messages), orjson.dumps(fields)[1:])


def _is_limited(result: Published | ServiceError) -> bool:
    return isinstance(result, ServiceError) and result.code == "rate_limited"


def _positions(found: PositionList) -> dict[str, object]:
    positions = [
        _present(topic=each.topic, first=each.first, last=each.last, at=each.at)
        for each in found.positions
    ]
    fields: dict[str, object] = {"positions": positions, "timestamp": found.timestamp}
    if found.has_more:
        fields["has_more"] = True
    return fields


def _member(member: Member) -> dict[str, object]:
    return _present(
        client_id=member.client_id,
        user_id=member.user_id,
        name=member.name,
        avatar_url=member.avatar_url,
        status=member.status,
        metadata=member.metadata or None,
        joined_at=member.joined_at,
        last_seen=member.last_seen,
    )


def _connection(report: ConnectionReport) -> dict[str, object]:
    return _present(
        client_id=report.client_id,
        user_id=report.user_id,
        kind=report.kind,
        name=report.name,
        transport=report.transport,
        address=report.address,
        connected_at=report.connected_at,
        patterns=report.patterns,
        subscriptions=report.subscriptions,
        queued_bytes=report.queued_bytes,
        queue_limit=report.queue_limit,
        stalled=report.stalled,
    )


def _report(report: TopicReport) -> dict[str, object]:
    return _present(
        topic=report.topic,
        subscribers=report.subscribers,
        messages=report.messages,
        position=report.position,
        last_message_at=report.last_message_at,
    )
