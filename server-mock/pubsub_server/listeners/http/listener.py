"""The HTTP listener: routes, CORS and errors."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Caller
from pubsub_server.listeners.callers import FORWARDED, peer
from pubsub_server.listeners.http import requests
from pubsub_server.listeners.http.connection import SERVER, HttpConnection
from pubsub_server.listeners.http.connections import HttpConnections
from pubsub_server.listeners.http.console import is_console
from pubsub_server.listeners.http.problems import problem
from pubsub_server.listeners.http.request_ids import CALLER, REQUEST_ID, new_request_id, request_id
from pubsub_server.listeners.http.requests import UnsupportedMedia
from pubsub_server.listeners.http.rest import RestApi
from pubsub_server.listeners.http.sse import EventStreams
from pubsub_server.listeners.pre_auth import RETRY_SECONDS, TOO_MANY
from pubsub_server.listeners.tls_server import BACKLOG, TlsServer
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.shared.own_addresses import own_hosts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pubsub_server.access.policy import Policy
    from pubsub_server.listeners.http.console import Console
    from pubsub_server.listeners.origins import Origins
    from pubsub_server.observe.metrics import Metrics
    from pubsub_server.service import FaultDoor, Service
    from pubsub_server.settings.config import Settings

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

EXPOSED: Final = "Client-Id, Retry-After, X-Request-Id, WWW-Authenticate"
ALLOWED_HEADERS: Final = (
    "Authorization, Content-Type, Accept, Cache-Control, Idempotency-Key, Last-Event-ID, "
    "X-Request-Id"
)
METRICS: Final = "/metrics"
"""Paths for the operator, without CORS headers."""
PREFLIGHT_SECONDS: Final = 600
SHORTEST: Final = 0.05
"""Minimum seconds for open requests at shutdown, even if the time is over."""

_LOG: Final = logging.getLogger("pubsub_server.http")


class HttpListener:
    """REST and event streams on one port.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        origins: The pages that may use it.
        metrics: Counts requests and answers `/metrics`.
        ready: Whether the server accepts new work, for `/readyz`.
        openapi: The bundled description of this API.
        console: The page at `/`.
        faults: Fault injection, if enabled.
    """

    def __init__(
        self,
        service: Service,
        policy: Policy,
        settings: Settings,
        origins: Origins,
        metrics: Metrics,
        *,
        ready: Callable[[], bool],
        openapi: Path | None = None,
        console: Console | None = None,
        faults: FaultDoor | None = None,
    ) -> None:
        self.connections = HttpConnections(settings)
        self._settings = settings
        self._metrics = metrics
        self._ready = ready
        self._openapi = openapi.read_bytes() if openapi is not None else None
        self._origins = origins
        self.exposition = metrics.alone
        self._rest = RestApi(service, policy, settings)
        self._streams = EventStreams(service, policy, settings)
        app = self._application(console, faults)
        self._runner = web.AppRunner(app, handle_signals=False)
        self._server: asyncio.Server | TlsServer | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> int:
        """Listens, and returns the port.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        await self._runner.setup()
        manager = self._runner.server
        assert manager is not None
        loop = asyncio.get_running_loop()
        settings = self._settings
        reuse_port = settings.workers > 1
        if tls is None:
            self._server = await loop.create_server(
                lambda: HttpConnection(manager, loop, self.connections),
                await own_hosts(settings.host, settings.http_port),
                settings.http_port,
                backlog=BACKLOG,
                reuse_port=reuse_port or None,
            )
        else:
            self._server = TlsServer(
                lambda: HttpConnection(manager, loop, self.connections),
                tls,
                settings,
                self.connections.handshakes,
                lambda: self.connections.open,
                seconds=settings.header_timeout / 1000,
            )
            await self._server.listen(settings.host, settings.http_port, reuse_port=reuse_port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop_listening(self) -> None:
        """Stops accepting connections."""
        await stop_accepting(self._server)

    async def stop(self, seconds: float) -> None:
        """Waits for open requests, for at most this long, and ends every connection."""
        await self.stop_listening()
        self.connections.stopped = True
        manager = self._runner.server
        if manager is not None:
            # aiohttp waits twice, for handlers and for connections, and waits forever with 0.
            await manager.shutdown(max(seconds / 2, SHORTEST))
        await self._runner.cleanup()

    def _application(self, console: Console | None, faults: FaultDoor | None) -> web.Application:
        app = web.Application(middlewares=[self._guard], logger=_LOG)
        app.on_response_prepare.append(self._complete)
        rest, streams, router = self._rest, self._streams, app.router
        router.add_get("/healthz", self._health)
        router.add_get("/readyz", self._readiness)
        router.add_get(METRICS, self._exposition)
        router.add_get("/v1/openapi.json", self._description)
        router.add_post("/v1/topics/{topic}/messages", rest.publish)
        router.add_post("/v1/messages:batch", rest.batch)
        router.add_post("/v1/positions", rest.positions)
        router.add_get("/v1/topics/{topic}/history", rest.history)
        router.add_get("/v1/topics/{topic}/presence", rest.presence)
        router.add_get("/v1/topics/{topic}/occupancy", rest.occupancy)
        router.add_get("/v1/topics", rest.topics)
        router.add_get("/v1/connections", rest.connections)
        router.add_delete("/v1/connections/{client_id}", rest.cut)
        router.add_get("/v1/session", rest.session)
        router.add_get("/v1/access", rest.access)
        router.add_get("/v1/subscribe", streams.get, allow_head=False)
        router.add_post("/v1/subscribe", streams.post)
        if console is not None:
            console.add_to(router)
        if faults is not None:
            router.add_post("/v1/faults", rest.faults(faults))
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = requests.connection(request)
        connection.head_received()
        identifier = request_id(request.headers.get("X-Request-Id"))
        request[REQUEST_ID] = identifier
        forwarded = request.headers.getall(FORWARDED, [])
        address = self.connections.callers.address(peer(request.transport), forwarded)
        request[CALLER] = Caller(address, identifier)
        began = time.perf_counter()
        if not connection.begin_request(address):
            error = ServiceError("connection_limit", TOO_MANY, retry_after_ms=RETRY_SECONDS * 1000)
            response: web.StreamResponse = problem(error, identifier)
            response.force_close()
        elif connection.version_refused:
            error = ServiceError("unsupported", "this server supports HTTP/1.1")
            remedy = "Send the request as HTTP/1.1."
            response = problem(error, identifier, status=505, remedy=remedy)
            response.force_close()
        else:
            response = await self._answer(request, handler, identifier)
        connection.end_request()
        try:
            connection.sending(request.method, response)
        except ServiceError as error:
            response = problem(error, identifier)
        if connection.turned_away:
            response.force_close()
        seconds = time.perf_counter() - began
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unknown"
        self._metrics.request(route, request.method, response.status, seconds)
        if not self._ready():
            # Close, so that the next request goes to another node.
            response.force_close()
        _LOG.debug(
            "request %s: %s %s %d %.1f ms",
            identifier, request.method, route, response.status, seconds * 1000,
        )  # fmt: skip
        return response

    async def _answer(
        self, request: web.Request, handler: Handler, identifier: str
    ) -> web.StreamResponse:
        refusal = request.match_info.http_exception
        if isinstance(refusal, web.HTTPMethodNotAllowed):
            allowed = ", ".join(sorted({*refusal.allowed_methods, "OPTIONS"}))
            if request.method == "OPTIONS":
                return self._options(request, allowed)
            error = ServiceError("unsupported", f"this address accepts only {allowed}")
            return problem(
                error,
                identifier,
                status=405,
                remedy="Use one of the methods in the header Allow.",
                headers={"Allow": allowed},
            )
        if refusal is not None:
            return _nothing_here(request, identifier)
        try:
            return await handler(request)
        except UnsupportedMedia as error:
            return problem(
                error,
                identifier,
                status=415,
                remedy="Send plain JSON, with the header `Content-Type: application/json`.",
            )
        except ServiceError as error:
            return problem(error, identifier)
        except web.HTTPException as error:
            return problem(
                ServiceError("invalid_frame", error.reason), identifier, status=error.status
            )
        except (aiohttp.ClientPayloadError, web.RequestPayloadError, ConnectionError):
            return problem(ServiceError("invalid_frame", "the body is incomplete"), identifier)
        except Exception:
            _LOG.exception("request %s failed", identifier)
            return problem(
                ServiceError("internal", "the server failed to process this request"), identifier
            )

    def _options(self, request: web.Request, allowed: str) -> web.Response:
        headers = {"Allow": allowed}
        if "Access-Control-Request-Method" in request.headers:
            headers["Access-Control-Allow-Methods"] = allowed
            headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
            headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
        return web.Response(status=204, headers=headers)

    async def _complete(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the headers of every response."""
        headers = response.headers
        headers["Server"] = SERVER
        # aiohttp answers a rejected `Expect` before it calls a handler.
        headers["X-Request-Id"] = request.get(REQUEST_ID) or new_request_id()
        headers["X-Content-Type-Options"] = "nosniff"
        if is_console(request.path) or request.path == METRICS:
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            return
        origin = request.headers.get("Origin")
        listed = self._origins.listed
        if listed is None:
            headers["Access-Control-Allow-Origin"] = "*"
        else:
            headers["Vary"] = "Origin"
            if origin is None or (origin not in listed and _is_own(origin, request)):
                return
            if not self._origins.allows(origin):
                return
            headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = EXPOSED

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readiness(self, request: web.Request) -> web.Response:
        if not self._ready():
            raise ServiceError(
                "unavailable",
                "the server is starting, is shutting down, or does not receive published messages",
            )
        return web.json_response({"status": "ok"})

    async def _exposition(self, request: web.Request) -> web.Response:
        body, content_type = await self.exposition()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _description(self, request: web.Request) -> web.Response:
        if self._openapi is None:
            raise ServiceError("not_found", "this server has no API description")
        return web.Response(body=self._openapi, content_type="application/json")


def _is_own(origin: str, request: web.Request) -> bool:
    """Whether the request seems to be from a page of this server, which needs no permission.

    A page of the same host with another scheme has the same `Host`, and needs one.
    """
    return origin.partition("://")[2] == request.host


def _nothing_here(request: web.Request, identifier: str) -> web.Response:
    if request.path != "/ws":
        error = ServiceError("not_found", "this address does not exist")
        return problem(error, identifier)
    response = problem(
        ServiceError("not_found", "the WebSocket is not on the HTTP port"),
        identifier,
        remedy="Connect to the WebSocket port, 8057 unless it is set otherwise.",
    )
    # The bytes after a rejected upgrade may not be HTTP.
    response.force_close()
    return response
