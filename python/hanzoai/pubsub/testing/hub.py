"""The parts of the reference server that `MemoryServer` needs: hub, tokens, HTTP calls."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from msgspec.structs import asdict

from hanzoai.pubsub.errors import from_code
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.values import Published
from pubsub_server.access.policy import Policy, load_rules
from pubsub_server.auth.identity import Identity, strip_bearer
from pubsub_server.backplanes.memory import open_memory
from pubsub_server.errors import ServiceError
from pubsub_server.hub.hub import Hub
from pubsub_server.settings import sources as config_sources
from pubsub_server.shared import codec
from pubsub_server.shared.limits import ConnectionLimiter, RateLimiter
from pubsub_server.shared.position_requests import decode_positions
from pubsub_server.shared.publications import decode_publication
from pubsub_server.shared.wall_clock import never_back
from pubsub_server.shared.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.testing.kinds import Kind
    from pubsub_server.backplane import Published as Taken
    from pubsub_server.backplane import Standing, TopicReport
    from pubsub_server.interfaces import AuthOk, Member


class Tokens:
    """Tokens in memory, and their authenticator for the hub."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Identity] = {}

    def make(
        self,
        user: str,
        *,
        kind: Kind,
        ttl: float | None,
        name: str | None,
        orgs: Sequence[str],
        sessions_owned: Sequence[str],
        sessions_shared: Sequence[str],
        agents: Sequence[str],
    ) -> str:
        """Return a token for an identity."""
        token = f"memory-{secrets.token_urlsafe(12)}"
        self._known[token] = Identity(
            user_id=user,
            kind=kind,
            name=name or user,
            orgs=frozenset(orgs),
            sessions_owned=frozenset(sessions_owned),
            sessions_shared=frozenset(sessions_shared),
            agents=frozenset(agents),
            expires_at=None if ttl is None else self._clock.wall_ms() + round(ttl * 1000),
        )
        return token

    def expire_all(self) -> None:
        """Expire every token."""
        now = self._clock.wall_ms()
        for token, identity in self._known.items():
            self._known[token] = replace(identity, expires_at=now)

    async def authenticate(self, token: str) -> Identity:
        """See ``pubsub_server.interfaces.Authenticator``."""
        identity = self._known.get(strip_bearer(token))
        if identity is None:
            raise ServiceError("token_invalid", "this server did not issue the token")
        if identity.expires_at is not None and identity.expires_at <= self._clock.wall_ms():
            raise ServiceError("token_expired", "the token has expired")
        return identity


class _Open:
    """Access rules that allow everything."""

    def may_subscribe(self, identity: Identity, topic: str) -> bool:
        return True

    def may_subscribe_pattern(self, identity: Identity, pattern: str) -> bool:
        return True

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return True

    def may_administer(self, identity: Identity) -> bool:
        return identity.kind in ("admin", "service")


class MemoryHub:
    """The hub of the reference server on a given clock.

    Args:
        clock: Clock of the hub.
        rules: Path of access rules; None allows everything.
        settings: Settings of the server.
    """

    def __init__(
        self, clock: Clock, rules: str | PathLike[str] | None, settings: Mapping[str, object]
    ) -> None:
        given: dict[str, object] = {
            "dev": True,
            "publish_rate_user": 1_000_000,
            "publish_rate_service": 1_000_000,
            **settings,
        }
        config = config_sources.load(given)
        self.tokens = Tokens(clock)
        wall = never_back(clock.wall_ms, clock.now)
        self.hub = Hub(
            config,
            authenticator=self.tokens,
            policy=_Open() if rules is None else Policy(load_rules([Path(rules)])),
            rates=RateLimiter(
                config.publish_rate_user,
                config.publish_rate_service,
                config.publish_burst,
                clock.now,
            ),
            limiter=ConnectionLimiter(
                config.connections_per_user, config.connections_per_org, config.org_limits
            ),
            backplane=open_memory(config, wall),
            clock=clock.now,
            wall=wall,
            today=clock.wall_ms,
        )
        core = self.hub.core

        def call_at(at: float, run: Callable[[], None]) -> asyncio.TimerHandle:
            # A moment later than requested: a float may fall short of the tick of the fixed clock
            # forever. The wheel only ever cancels what it gets.
            return cast("asyncio.TimerHandle", clock.call_later(at - clock.now() + 0.001, run))

        core.wheel = Wheel(clock.now, call_at)
        core.wheel.add(self.hub, clock.now() + 5.0)
        self._stop = core.wheel.stop
        self.http = MemoryHttp(self.hub, config.max_payload)

    async def publish(self, topic: str, message: Mapping[str, Any]) -> Published:
        """Publish as a service."""
        limit = self.hub.core.settings.max_payload
        try:
            draft = decode_publication(dict(message), topic=topic, max_payload=limit)
            (result,) = await self.hub.publish(Identity("server", "service"), [draft])
            if isinstance(result, ServiceError):
                raise result
        except ServiceError as error:
            raise from_code(
                error.code, error.message, topic=error.topic, field=error.field
            ) from None
        return Published(result.id, result.timestamp, result.seq, result.duplicate)

    async def close(self) -> None:
        """Stop the hub."""
        await self.hub.drain(0)
        self._stop()


class MemoryHttp(httpx.AsyncBaseTransport):
    """An httpx transport that calls the HTTP API of a hub without HTTP."""

    def __init__(self, hub: Hub, max_payload: int) -> None:
        self._hub = hub
        self._max_payload = max_payload

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        await request.aread()
        try:
            token = request.headers.get("Authorization", "")
            identity = await self._hub.identify(token)
            body = await self._answer(request, identity)
        except ServiceError as error:
            return _problem(error)
        return httpx.Response(200, json=body)

    async def _answer(self, request: httpx.Request, identity: Identity) -> dict[str, Any]:
        hub, query = self._hub, request.url.params
        path = [
            unquote(part) for part in request.url.raw_path.decode().partition("?")[0].split("/")
        ]
        match request.method, path[1:]:
            case "POST", ["v1", "topics", topic, "messages"]:
                body = cast("dict[str, object]", json.loads(request.content))
                draft = decode_publication(body, topic=topic, max_payload=self._max_payload)
                (result,) = await hub.publish(identity, [draft])
                if isinstance(result, ServiceError):
                    raise result
                return _result(result)
            case "POST", ["v1", "messages:batch"]:
                items = json.loads(request.content)["messages"]
                drafts = [decode_publication(item, max_payload=self._max_payload) for item in items]
                results: Sequence[Taken | ServiceError] = await hub.publish(identity, drafts)
                return {"results": [_result(result) for result in results]}
            case "GET", ["v1", "topics", topic, "history"]:
                before = _whole(query.get("before_seq"))
                page = await hub.history(
                    identity,
                    topic,
                    since=_whole(query.get("since")),
                    before=query.get("before") if before is None else before,
                    after=_whole(query.get("after")),
                    limit=_whole(query.get("limit")),
                )
                return {
                    "messages": [json.loads(message) for message in page.messages],
                    "has_more": page.has_more,
                    "truncated": page.truncated,
                    "reset": page.reset,
                    **({} if page.position is None else {"position": page.position}),
                }
            case "POST", ["v1", "positions"]:
                body = cast("dict[str, object]", json.loads(request.content))
                gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                found = await hub.positions(identity, decode_positions(body), gone)
                return {
                    "positions": [_fields(each) for each in found.positions],
                    "timestamp": found.timestamp,
                    "has_more": found.has_more,
                }
            case "GET", ["v1", "topics", topic, "presence"]:
                members = await hub.presence(identity, topic)
                return {"members": [_fields(member) for member in members]}
            case "GET", ["v1", "topics"]:
                reports, more = await hub.topics(
                    identity,
                    prefix=query.get("prefix", ""),
                    limit=_whole(query.get("limit")) or 100,
                )
                return {"topics": [_fields(report) for report in reports], "has_more": more}
            case "GET", ["v1", "session"]:
                ok: AuthOk = hub.session(identity)
                return {**_fields(ok), "features": list(ok.features), "limits": dict(ok.limits)}
            case _:
                raise ServiceError("not_found", "this address does not exist")


def _result(result: Taken | ServiceError) -> dict[str, Any]:
    if isinstance(result, ServiceError):
        return {"error": codec.error_info(result)}
    return {name: got for name, got in asdict(result).items() if got is not None}


def _problem(error: ServiceError) -> httpx.Response:
    record = CODES.get(error.code, CODES["internal"])
    status = record.status or 500
    body = {**codec.error_info(error), "title": record.meaning, "status": status}
    body["detail"] = body.pop("message")
    return httpx.Response(status, json=body)


def _fields(value: AuthOk | Member | Standing | TopicReport) -> dict[str, Any]:
    return {
        field.name: got
        for field in fields(value)
        if (got := getattr(value, field.name)) is not None
    }


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)
