"""One server: connects all parts, starts them, and drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import InvalidTopic, UsageError
from hanzoai.pubsub.sp.codec import Framing
from pubsub_server.access import setup as access
from pubsub_server.access.served_certificate import ServedCertificate
from pubsub_server.access.setup import StartError
from pubsub_server.backplanes.memory import open_memory
from pubsub_server.backplanes.mesh.opening import UnusableError, open_mesh
from pubsub_server.hub.faults import Faults
from pubsub_server.hub.hub import Hub
from pubsub_server.instruments import Reading
from pubsub_server.listeners.byte_connections import NOBODY
from pubsub_server.listeners.event_stream.listener import event_stream_listener
from pubsub_server.listeners.http.console import Console
from pubsub_server.listeners.http.dev_sign_in import DevSignIn
from pubsub_server.listeners.http.listener import HttpListener
from pubsub_server.listeners.hub_protocol.listener import hub_listener
from pubsub_server.listeners.origins import Origins
from pubsub_server.listeners.sp_pub.listener import sp_listener
from pubsub_server.listeners.websocket.connections import SocketConnections
from pubsub_server.listeners.websocket.listener import WebSocketListener
from pubsub_server.observe import audit_kafka
from pubsub_server.observe.audit import AuditLog, FileSink
from pubsub_server.observe.audit_streams import StreamSink
from pubsub_server.observe.descriptors import Descriptors
from pubsub_server.observe.loop_lag import LoopLag
from pubsub_server.observe.metrics import Metrics
from pubsub_server.observe.webhooks import WebhookSender
from pubsub_server.settings.addresses import parse_address, parse_sp_url
from pubsub_server.shared.failure_texts import listen_failure
from pubsub_server.shared.limits import ConnectionLimiter, RateLimiter
from pubsub_server.shared.wall_clock import never_back, now_ms
from pubsub_server.tasks import FAILURES
from pubsub_server.workers.pool import WorkerPool
from pubsub_server.workers.ports import refused_port

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from pubsub_server.access.policy import Policy
    from pubsub_server.auth.api_keys import ApiKeys
    from pubsub_server.auth.identity import Identity
    from pubsub_server.auth.jwks import JwksAuthenticator
    from pubsub_server.backplane import Backplane
    from pubsub_server.backplanes.mesh.backplane import MeshBackplane
    from pubsub_server.backplanes.redis.backplane import RedisBackplane
    from pubsub_server.instruments import Instrument
    from pubsub_server.interfaces import Inspector
    from pubsub_server.listeners.byte_listener import ByteListener
    from pubsub_server.listeners.pre_auth import PreAuthLimiter
    from pubsub_server.listeners.signed.endpoint import SignedEndpoint
    from pubsub_server.observe.audit import AuditSink
    from pubsub_server.observe.audit_streams import Carrier
    from pubsub_server.observe.tracing import Tracing
    from pubsub_server.settings.addresses import Address
    from pubsub_server.settings.config import ListenerName, Settings
    from pubsub_server.workers.shutdown_barrier import ShutdownBarrier

OPENAPI: Final = Path(__file__).with_name("generated") / "openapi.json"

BARRIER: Final = 0.5
"""Maximum part of the shutdown time in which workers wait for each other."""


class Server:
    """A server of one node.

    Args:
        settings: Checked by `access.check`.
        dev_key: Signs development tokens, where `dev_key_file` names no file; the file of this
            user otherwise.
        worker: Folder of the supervisor and number of the worker, if there is one.

    Attributes:
        settings: As given.
        dev_key: Signs development tokens; None without `dev`.
        http: Base URL of the HTTP API, after `start`.
        ws: URL of the WebSocket, after `start`.
        others: URLs of the other enabled listeners, by name of their setting, after `start`.
        faults: Fault injection, with the setting `faults`.
        console: The page at `/`, after `start`.
    """

    def __init__(
        self,
        settings: Settings,
        dev_key: bytes | None = None,
        worker: tuple[Path, int] | None = None,
    ) -> None:
        self.settings = settings
        self.dev_key = dev_key if settings.dev and settings.dev_key_file is None else None
        self.http = ""
        self.ws = ""
        self.others: dict[str, str] = {}
        self.faults: Faults | None = None
        self.console: Console | None = None
        self._hub: Hub | None = None
        self._ready = False
        self._hurry = asyncio.Event()
        self._worker = worker
        self._pool: WorkerPool | None = None
        self.barrier: ShutdownBarrier | None = None
        self._audit: AuditLog | None = None
        self._audit_file: FileSink | None = None
        self._audit_streams: list[StreamSink] = []
        self._jwks: JwksAuthenticator | None = None
        self._keys: ApiKeys | None = None
        self._certificate: ServedCertificate | None = None
        self._webhooks: WebhookSender | None = None
        self._lag: LoopLag | None = None
        self._descriptors: Descriptors | None = None
        self._tracing: Tracing | None = None
        self._http_listener: HttpListener | None = None
        self._ws_listener: WebSocketListener | None = None
        self._byte_listeners: list[ByteListener] = []
        self._signed: SignedEndpoint | None = None

    @property
    def hub(self) -> Hub:
        """The hub of a started server.

        Raises:
            RuntimeError: It has not been started.
        """
        if self._hub is None:
            raise RuntimeError("the server has not been started")
        return self._hub

    @property
    def ready(self) -> bool:
        """Whether the server accepts new work."""
        return self._ready and self.hub.receiving

    async def start(self) -> None:
        """Start listening; `http` and `ws` then contain the addresses.

        Raises:
            StartError: The settings do not allow it, a file is wrong, or a port is in use.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Reject new work, let open work finish within `drain_timeout`, and close everything.

        If it is cancelled, it no longer waits for open work, but still closes everything.
        """
        settings = self.settings
        loop = asyncio.get_running_loop()
        end = loop.time()

        def left() -> float:
            return max(0.0, end - loop.time())

        async with AsyncExitStack() as stack:
            self._close_after(stack, left)
            if self._ready and settings.drain_notice:
                self._ready = False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.drain_notice / 1000):
                        await self._hurry.wait()
            self._ready = False
            end = loop.time() + settings.drain_timeout / 1000
            try:
                await self._drain(left)
            except BaseException:
                end = loop.time()
                raise

    async def _drain(self, left: Callable[[], float]) -> None:
        listeners = (self._http_listener, self._ws_listener, *self._byte_listeners)
        for listener in listeners:
            if listener is not None:
                await listener.stop_listening()
        if self._hub is not None:
            if self.barrier is not None and self.barrier.wanted:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left() * BARRIER):
                        await self._hub.conclude(self.barrier.wait)
            await self._hub.drain(left(), self.settings.spread / 1000, self._hurry)

    def _close_after(self, stack: AsyncExitStack, left: Callable[[], float]) -> None:
        """Let this close everything, even if an earlier step fails; the last one added is first."""
        close = stack.push_async_callback
        if self._lag is not None:
            stack.callback(self._lag.stop)
        if self._descriptors is not None:
            stack.callback(self._descriptors.stop)
        if self._keys is not None:
            close(self._keys.close)
        if self._certificate is not None:
            close(self._certificate.close)
        close(_each, [sink.close for sink in self._audit_streams])
        if self._audit_file is not None:
            close(asyncio.to_thread, self._audit_file.close)
        if self._tracing is not None:
            close(self._tracing.close)
        if self._jwks is not None:
            close(self._jwks.close)
        if self._webhooks is not None:
            webhooks = self._webhooks
            close(lambda: webhooks.close(left()))
        if self._hub is not None:
            # Requests that were open could still publish.
            close(self._hub.close)
        if self._pool is not None:
            close(self._pool.close)
        if self._signed is not None:
            close(self._signed.stop)
        listeners = (self._ws_listener, self._http_listener, *self._byte_listeners)
        stops = [each.stop for each in listeners if each is not None]
        close(lambda: _each([partial(stop, left()) for stop in stops]))

    def hurry(self) -> None:
        """Finish immediately what `stop` spreads over time."""
        self._hurry.set()

    async def _start(self) -> None:
        settings = self.settings
        access.check(settings)
        policy = access.build_policy(settings)
        tls = byte_tls = None
        if settings.tls_cert and settings.tls_key:
            self._certificate = ServedCertificate(
                settings.tls_cert, settings.tls_key, None, settings.listener_client_ca
            )
            tls, byte_tls = self._certificate.contexts
        if self.dev_key is None:
            self.dev_key = access.build_dev_key(settings)
        self._open_audit()
        authenticator, self._jwks, self._keys = access.build_authenticator(
            settings, self.dev_key, self._token_checked
        )
        webhooks = self._webhooks = _webhooks(settings)
        self._tracing = _tracing() if settings.tracing else None
        inspectors = _inspectors(settings)
        redis = await _redis(settings) if settings.on_redis else None
        wall = never_back(now_ms if redis is None else redis.now)
        backplane: Backplane
        if redis is not None:
            backplane = redis
        elif settings.on_mesh:
            backplane = await self._mesh(wall)
        else:
            backplane = open_memory(settings, wall)
        hub = self._hub = Hub(
            settings,
            authenticator=authenticator,
            policy=policy,
            rates=_rates(settings) if redis is None else redis.rates,
            limiter=_connections(settings) if redis is None else redis.connections,
            backplane=backplane,
            roster=None if redis is None else redis.roster,
            audit=self._audit,
            webhooks=webhooks if settings.webhooks else None,
            tracing=self._tracing,
            inspectors=inspectors,
            wall=wall,
        )
        lag = self._lag = LoopLag()
        self.faults = Faults(hub) if settings.faults else None
        sign_in = None if self.dev_key is None else DevSignIn(settings, self.dev_key)
        console = self.console = Console(settings, server_version(), sign_in)
        metrics = Metrics(lambda: hub.stats, self.instruments(), server_version())
        origins = Origins(settings.cors_origins, hub.clock)
        self._http_listener = HttpListener(
            hub,
            policy,
            settings,
            origins,
            metrics,
            ready=lambda: self.ready,
            openapi=OPENAPI,
            console=console,
            faults=self.faults,
        )
        if self._worker is not None:
            self._pool = WorkerPool(*self._worker, metrics.exposition)
            await self._pool.start()
            self._http_listener.exposition = self._pool.exposition
        if settings.signed:
            self._signed = _signed_endpoint(hub, policy, settings)
        endpoints = () if self._signed is None else (self._signed,)
        self._ws_listener = WebSocketListener(SocketConnections(hub, settings, origins, endpoints))
        http_port = await _listening(self._http_listener.start(tls), "http_port", settings)
        ws_port = await _listening(self._ws_listener.start(tls), "ws_port", settings)
        await self._start_byte_listeners(policy, byte_tls)
        if self._signed is not None:
            self._signed.mirrors.start()
        console.ws_port = ws_port
        webhooks.start()
        lag.start()
        if self._keys is not None:
            self._keys.on_withdrawn = hub.admission.withdraw
            self._keys.start()
        if self._certificate is not None:
            self._certificate.start()
        if self._jwks is not None:
            self._jwks.start()
        self._descriptors = Descriptors()
        self._descriptors.start()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        secure = "s" if tls is not None else ""
        self.http = f"http{secure}://{host}:{http_port}"
        self.ws = f"ws{secure}://{host}:{ws_port}/ws"
        if self._signed is not None:
            self.others["signed"] = f"ws{secure}://{host}:{ws_port}/pubsub/"
        self._ready = True

    async def _mesh(self, wall: Callable[[], int]) -> MeshBackplane:
        try:
            backplane, bound = await open_mesh(self.settings, wall)
        except UnusableError as error:
            raise StartError(f"{error.setting}: {error}") from None
        secure = "" if self.settings.mesh_tls_cert is None else "+tls"
        self.others["mesh"] = f"mesh{secure}://{bound}"
        return backplane

    async def _start_byte_listeners(self, policy: Policy, tls: ssl.SSLContext | None) -> None:
        """Start the listeners of other protocols that the settings enable."""
        settings, hub = self.settings, self.hub
        hooks = self._webhooks if settings.webhooks else None
        if settings.event_stream is not None:
            listener = event_stream_listener(
                hub, policy, settings, _acting(settings, "event_stream"), hooks
            )
            await self._open(listener, settings.event_stream, "events", tls)
        if settings.hub is not None:
            other = hub_listener(hub, policy, settings, _acting(settings, "hub"))
            await self._open(other, settings.hub, "hub", tls)
        if settings.sp_pub is not None:
            await self._open_sp(settings.sp_pub, policy, tls)
        if settings.signed_listen is not None and self._signed is not None:
            from pubsub_server.listeners.signed.stream_listener import Streams

            streams = Streams(hub, policy, settings, _acting(settings, "signed"))
            self._signed.streams = streams
            await self._open(streams.listener, settings.signed_listen, "tcp", tls)

    async def _open_sp(self, url: str, policy: Policy, tls: ssl.SSLContext | None) -> None:
        settings, address = self.settings, parse_sp_url(url)
        framing = Framing.TCP if address.path is None else Framing.IPC
        listener = sp_listener(self.hub, policy, settings, _acting(settings, "sp_pub"), framing)
        bound = await self._bound(listener, address, url, tls)
        scheme = "tls+tcp" if tls is not None else "tcp"
        self.others[listener.connections.name] = (
            url if bound.path is not None else f"{scheme}://{bound}"
        )

    async def _open(
        self, listener: ByteListener, text: str, scheme: str, tls: ssl.SSLContext | None
    ) -> None:
        bound = await self._bound(listener, parse_address(text), text, tls)
        secure = "+tls" if tls is not None else ""
        url = f"{scheme}+{bound}" if bound.path is not None else f"{scheme}{secure}://{bound}"
        self.others[listener.connections.name] = url

    async def _bound(
        self, listener: ByteListener, address: Address, text: str, tls: ssl.SSLContext | None
    ) -> Address:
        self._byte_listeners.append(listener)
        connections = listener.connections
        signed = connections.name == "signed_stream"
        name: ListenerName = "signed" if connections.name == "signed_stream" else connections.name
        entry = self.settings.listener_identities.get(name)
        if entry is not None:
            connections.certified = {
                name: each.identity() for name, each in entry.certificates.items()
            }
        try:
            return await listener.start(address, tls)
        except (OSError, OverflowError) as error:
            reason = listen_failure(error, unix=address.path is not None)
            setting = "signed_listen" if signed else connections.name
            raise StartError(f"{setting}: cannot listen on {text}: {reason}") from None

    def reopen(self) -> None:
        """Reopen the audit log, for example after a rotation."""
        if self._audit_file is not None:
            self._audit_file.reopen()

    def instruments(self) -> list[Instrument]:
        """Measurements of a started server in addition to the counters of the hub."""
        hub, lag = self.hub, self._lag
        found: list[Instrument] = [
            Reading("ready", "1 if the server accepts requests, otherwise 0.", lambda: self.ready),
            Reading(
                "task_failures",
                "Background tasks that failed.",
                lambda: FAILURES.count,
                "counter",
            ),
            *(() if lag is None else (lag.timing,)),
            *hub.instruments(),
        ]
        found += [
            Reading(
                "unauthenticated_connections",
                "Open connections without authentication.",
                lambda: sum(map(len, self._limiters())),
            ),
            Reading(
                "unauthenticated_bytes",
                "Bytes buffered for unauthenticated connections.",
                lambda: sum(each.held for each in self._limiters()),
            ),
            Reading(
                "unauthenticated_refused",
                "Connections rejected by the limits per address.",
                lambda: sum(each.refused for each in self._limiters()),
                "counter",
            ),
        ]
        if self._certificate is not None:
            expiry = self._certificate.expiry_time
            help = "Unix time at which the certificate of `tls_cert` that is in use expires."
            found.append(Reading("tls_certificate_expiry_timestamp_seconds", help, expiry))
        audits = [each for each in (self._audit_file, *self._audit_streams) if each is not None]
        if audits:
            found += [
                Reading(
                    "audit_dropped",
                    "Dropped audit records.",
                    lambda: sum(each.dropped for each in audits),
                    "counter",
                ),
                Reading(
                    "audit_waiting",
                    "Audit records that wait to be written.",
                    lambda: sum(each.waiting for each in audits),
                ),
            ]
        if self._webhooks is not None and self.settings.webhooks:
            hooks = self._webhooks
            found += [
                Reading(
                    "webhooks_dropped", "Dropped webhook events.", lambda: hooks.dropped, "counter"
                ),
                Reading(
                    "webhooks_delivered",
                    "Webhook events delivered.",
                    lambda: hooks.delivered,
                    "counter",
                ),
                Reading(
                    "webhooks_waiting",
                    "Webhook events that wait to be sent.",
                    lambda: hooks.waiting,
                ),
            ]
        return found

    def _limiters(self) -> list[PreAuthLimiter]:
        # Read on demand: the listeners are created after the metrics.
        listeners = (self._http_listener, self._ws_listener)
        limiters = [each.connections.pre_auth for each in listeners if each is not None]
        everyone = (*listeners, *self._byte_listeners)
        return limiters + [each.connections.handshakes for each in everyone if each is not None]

    def _open_audit(self) -> None:
        settings = self.settings
        sinks: list[AuditSink] = []
        if settings.audit_file is not None:
            try:
                self._audit_file = FileSink(settings.audit_file, settings.audit_queue)
            except OSError as error:
                reason = f"audit_file {settings.audit_file}: {error.strerror}"
                raise StartError(reason) from None
            sinks.append(self._audit_file)
        for carrier in _carriers(settings):
            self._audit_streams.append(StreamSink(carrier, settings.audit_queue))
        sinks += self._audit_streams
        if not sinks:
            return
        try:
            self._audit = AuditLog(settings.audit_topics, *sinks)
        except InvalidTopic as error:
            raise StartError(f"audit_topics: {error.message} {error.remedy}") from None

    def _token_checked(self, identity: Identity | None, refused: str | None) -> None:
        self.hub.stats.token(refused)


def _acting(settings: Settings, name: ListenerName) -> Identity:
    """The identity of the connections of a listener."""
    entry = settings.listener_identities.get(name)
    return NOBODY if entry is None else entry.identity()


def _rates(settings: Settings) -> RateLimiter:
    return RateLimiter(
        settings.publish_rate_user,
        settings.publish_rate_service,
        settings.publish_burst,
        bulk=settings.publish_rate_bulk,
    )


def _connections(settings: Settings) -> ConnectionLimiter:
    return ConnectionLimiter(
        settings.connections_per_user, settings.connections_per_org, settings.org_limits
    )


def _webhooks(settings: Settings) -> WebhookSender:
    try:
        return WebhookSender(settings)
    except InvalidTopic as error:
        raise StartError(f"webhooks: {error.message} {error.remedy}") from None


def _carriers(settings: Settings) -> Iterator[Carrier]:
    if settings.audit_redis and settings.redis_url is not None:
        # Only a server that uses Redis loads its client: a fifth of the time to start.
        from pubsub_server.observe.audit_redis import RedisCarrier

        yield RedisCarrier(
            settings.redis_url.get_secret_value(),
            cluster=settings.redis_cluster,
            stream=f"{settings.redis_prefix}:audit",
            length=settings.audit_redis_length,
        )
    if settings.audit_kafka:
        try:
            password = settings.audit_kafka_password
            yield audit_kafka.KafkaCarrier(
                settings.audit_kafka,
                settings.audit_kafka_topic,
                tls=audit_kafka.build_tls(settings),
                user=settings.audit_kafka_user,
                password=None if password is None else password.get_secret_value(),
                mechanism=settings.audit_kafka_mechanism,
            )
        except ImportError as error:
            raise StartError(
                f"audit_kafka: {error.name} is not installed; "
                "pip install 'hanzoai-pubsub-server[kafka]'"
            ) from None


def _inspectors(settings: Settings) -> Sequence[Inspector]:
    found: list[Inspector] = []
    if settings.contract is not None:
        # Only a server with a contract loads the validator.
        from pubsub_server.contract import setup as contract

        found.append(contract.inspector(settings.contract))
    if not settings.signed:
        return found
    # Only a server of signed topics loads the curve and the hash.
    try:
        from pubsub_server.access.signed_topics import SignedTopics
    except UsageError as error:
        raise StartError(
            f"signed: {error.message} Install it: pip install 'hanzoai-pubsub-server[signed]'"
        ) from None
    return [*found, SignedTopics()]


def _signed_endpoint(hub: Hub, policy: Policy, settings: Settings) -> SignedEndpoint:
    from pubsub_server.listeners.signed.endpoint import SignedEndpoint

    identity = _acting(settings, "signed")
    endpoint = SignedEndpoint(hub, policy, settings, identity)
    for name in endpoint.mirrors.names:
        if not policy.may_publish(identity, name):
            raise StartError(
                f"signed_upstream_topics: the access rules do not allow {identity.user_id}"
                f" (listener_identities.signed) to publish on {name}"
            )
    return endpoint


def _tracing() -> Tracing:
    # Only a server that traces loads OpenTelemetry.
    try:
        from pubsub_server.observe.tracing import open_tracing

        return open_tracing(server_version())
    except ImportError as error:
        raise StartError(
            f"tracing: {error.name} is not installed; pip install 'hanzoai-pubsub-server[otel]'"
        ) from None


async def _each(ends: Iterable[Callable[[], Awaitable[object]]]) -> None:
    await asyncio.gather(*(end() for end in ends))


async def _redis(settings: Settings) -> RedisBackplane:
    # Only a server on Redis loads its client.
    from pubsub_server.backplanes.redis import opening

    try:
        return await opening.open_redis(settings)
    except opening.UnusableError as error:
        raise StartError(f"{error.setting}: {error}") from None


@cache
def server_version() -> str:
    """Version of the installed distribution; `0` if it is not installed."""
    try:
        return version("hanzoai-pubsub-server")
    except PackageNotFoundError:
        return "0"


async def _listening(start: Awaitable[int], name: str, settings: Settings) -> int:
    try:
        return await start
    except OSError as error:
        raise refused_port(error, name, settings) from None
