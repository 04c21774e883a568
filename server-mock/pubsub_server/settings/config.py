"""`Settings`: every listener, limit and deadline of the server, each with one name in all sources.

A setting `history_max_messages` is the flag `--history-max-messages`, the environment variable
`HANZO_PUBSUB_HISTORY_MAX_MESSAGES` and the key `history_max_messages` of the YAML file.
`sources.py` reads these; this module says what each setting accepts.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pubsub_server.auth.identity import DEFAULT_CLAIMS
from pubsub_server.settings import conflicts
from pubsub_server.settings.addresses import parse_address, parse_sp_url
from pubsub_server.settings.entries import HistoryClass, ListenerIdentity, Webhook
from pubsub_server.settings.kinds import (
    Count,
    Items,
    Milliseconds,
    Port,
    Rate,
    Seconds,
    Size,
    Switch,
    Wait,
)

ANYHOW = "anyhow"
"""Context of a validation that lets settings contradict each other, to look at them one by one."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

SPREAD_AMONG_NODES = 3_000
"""Milliseconds; a node that is alone ends all at once, for nobody else could take them."""

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+", re.ASCII)
_SOCKET_URL = re.compile(r"wss?://[a-zA-Z0-9.\[\]:-]+(?:/[a-zA-Z0-9._~/-]*)?", re.ASCII)
_BROKER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", re.ASCII)


class Settings(BaseModel):
    """All settings of a server, checked. Durations are milliseconds unless said otherwise.

    Durations also take a unit (`500ms`, `5s`, `2m`, `1h`), sizes `KiB`, `MiB` and `GiB`, lists
    commas. Where HIP-56 gives a number, that is the default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    # listeners
    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    http_port: Port = Field(default=8056, description="REST and event streams; 0 picks a free port")
    ws_port: Port = Field(default=8057, description="WebSocket; 0 picks a free port")
    tls_cert: Path | None = Field(default=None, description="certificate chain, PEM")
    tls_key: Path | None = Field(default=None, description="private key of the certificate, PEM")
    behind_tls_proxy: Switch = Field(
        default=False, description="accept plaintext, because a proxy in front ends TLS"
    )
    trusted_proxies: Items = Field(
        default=(),
        description="addresses and networks of proxies whose `X-Forwarded-For` names the client,"
        " for the limits per address and the audit log",
    )
    ws_url: str | None = Field(
        default=None,
        description="where browsers find the WebSocket; default: this port's host, or its proxy's",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="processes on these ports, joined by `redis_url`, else by a Redis or Valkey"
        " of their own (extra `workers`)",
    )
    event_stream: str | None = Field(
        default=None,
        description="address of the event stream protocol: a port (loopback), `HOST:PORT` or"
        " `unix:PATH`; 0 picks a free port",
    )
    hub: str | None = Field(
        default=None, description="address of the hub protocol of pub0sub, likewise"
    )
    sp_pub: str | None = Field(
        default=None,
        description="URL on which SP subscribers (NNG) get all topics: `tcp://HOST:PORT`,"
        " `ipc://PATH` or `abstract://NAME`",
    )
    listener_client_ca: Path | None = Field(
        default=None,
        description="authorities, PEM; the TLS listeners of these protocols then demand a client"
        " certificate of one of them, whose name may choose the identity",
    )
    listener_identities: dict[Literal["event_stream", "hub", "sp_pub"], ListenerIdentity] = Field(
        default_factory=dict[Literal["event_stream", "hub", "sp_pub"], ListenerIdentity],
        description="as whom connections of these listeners act, whose protocols have no tokens:"
        " JSON, or a file with it; without an entry as nobody, who may do what rules grant to"
        " unauthenticated clients",
    )
    cors_origins: Items = Field(
        default=("*",), description="origins whose pages may call the HTTP API; `*` is all"
    )
    backplane: Literal["memory", "redis"] | None = Field(
        default=None,
        description="what keeps the logs and joins the nodes; default: `redis` where `redis_url`"
        " is set, else `memory`",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="redis://, rediss:// or unix:// of the backplane; Redis 7 or later",
    )
    redis_cluster: Switch = Field(default=False, description="it is a Redis Cluster")
    redis_durable: Switch = Field(
        default=False,
        description="a Redis that is started again has all that it acknowledged (`appendonly yes`,"
        " `appendfsync always`); else each topic shows a gap then",
    )
    redis_prefix: str = Field(
        default="hanzo-pubsub",
        pattern=r"[A-Za-z0-9_-]{1,64}",
        description="what its keys begin with; services that share a Redis take different ones",
    )
    redis_shards: int = Field(
        default=64, ge=1, le=1024, description="parts of its keys; the same on every node, for ever"
    )
    node_heartbeat: Milliseconds = Field(
        default=2_000, description="between two signs of life of a node on Redis"
    )
    node_timeout: Milliseconds = Field(
        default=8_000,
        description="without a sign of life; then the members of a node leave; the same on every"
        " node, at least twice node_heartbeat",
    )

    feed_timeout: Annotated[Milliseconds, Field(ge=500)] = Field(
        default=15_000,
        description="without hearing what it publishes to itself, at least 500; then a node on"
        " Redis is not ready and lets its clients go",
    )

    # who
    dev: Switch = Field(default=False, description="development: local tokens, loopback only")
    dev_key_file: Path | None = Field(
        default=None, description="key that signs development tokens; made on first use"
    )
    iam_url: str | None = Field(default=None, description="base URL of IAM")
    iam_jwks_url: str | None = Field(
        default=None, description="JWKS of IAM; default: iam_url/.well-known/jwks.json"
    )
    jwt_audience: Items = Field(default=(), description="accepted `aud`; empty accepts any")
    jwt_issuer: str | None = Field(default=None, description="required `iss`")
    jwt_claims: dict[str, str] = Field(
        default_factory=dict, description="claims by field, where IAM names them otherwise"
    )
    jwt_leeway: Wait = Field(
        default=5_000, description="tolerated clock difference for `nbf` and `iat`"
    )
    jwks_max_age: Milliseconds = Field(
        default=600_000, description="interval of the fetches of keys in the background"
    )
    jwks_min_interval: Wait = Field(
        default=10_000, description="minimum time between two fetches of keys"
    )
    jwks_timeout: Milliseconds = Field(
        default=5_000,
        description="limit of one fetch of keys; a token with an unknown key waits at most half of"
        " `auth_deadline` for it",
    )
    token_memory: Wait = Field(
        default=5_000, description="a JWT that was checked is not checked again within; 0 never"
    )
    api_keys_file: Path | None = Field(default=None, description="hashed API keys, YAML or JSON")
    auth_deadline: Milliseconds = Field(
        default=5_000, description="for `auth` after opening a socket"
    )
    expiring_notice: Wait = Field(
        default=60_000, description="`auth.expiring` comes so long before the end, or half-way"
    )

    # what they may
    rules: Path | None = Field(
        default=None, description="access rules, YAML; default: those of HIP-56"
    )
    max_payload: Size = Field(default=262_144, description="bytes of JSON-encoded `data`")
    publish_rate_user: Rate = Field(default=10, description="publishes a second of a user")
    publish_rate_service: Rate = Field(default=100, description="publishes a second of a service")
    publish_rate_bulk: Rate = Field(
        default=10_000,
        description="publishes a second by batches of who has the claim `bulk`",
    )
    publish_burst: Milliseconds = Field(
        default=1_000, description="publishes that may come at once"
    )
    connections_per_user: Count = Field(default=100, description="open connections of a user")
    connections_per_org: Count = Field(
        default=10_000, description="open connections of an organization"
    )
    org_limits: dict[str, Count] = Field(
        default_factory=dict, description="connections of certain organizations"
    )
    max_connections: Count = Field(default=100_000, description="open connections of one listener")
    unauthenticated_per_address: Count | None = Field(
        default=None,
        description="open connections of one client address and listener that have not"
        " authenticated; default: 1,000, or no limit with `behind_tls_proxy` and without"
        " `trusted_proxies`, where all clients have the proxy's address",
    )
    unauthenticated_bytes: Size = Field(
        default=8_388_608,
        description="bytes that a listener holds for one client address before authentication",
    )
    max_subscriptions: Count = Field(default=1_000, description="patterns a connection")
    held_per_user: Count = Field(
        default=50, description="requests of a user that wait for positions, a node"
    )
    max_batch: Count = Field(default=1_000, description="messages a batch")
    max_batch_bytes: Size = Field(default=8_388_608, description="bytes of a batch request")

    # presence, history
    presence_timeout: Milliseconds = Field(
        default=30_000, description="silence that ends a connection"
    )
    program_timeout: Wait = Field(
        default=120_000,
        description="a connection ends when its program sends no frame for this long, although its"
        " socket answers pings; 0 waits without limit",
    )
    presence_grace: Wait = Field(default=5_000, description="between a lost connection and `leave`")
    presence_max_members: Count = Field(default=10_000, description="members of a topic")
    history_max_messages: int = Field(
        default=100, ge=0, le=1_000_000, description="messages retained a topic"
    )
    history_max_age: Seconds = Field(
        default=3_600, description="a message is retained; a number without a unit is seconds"
    )
    history_classes: tuple[HistoryClass, ...] = Field(
        default=(),
        description="what certain topics retain, the first that matches; a JSON list as a flag;"
        " `max_age` without a unit is seconds",
    )
    history_max_bytes: Size = Field(default=1_073_741_824, description="bytes retained, all topics")
    history_page_default: Count = Field(default=50, description="messages of a page of history")
    history_page_max: Count = Field(
        default=500, description="messages of the largest page of history"
    )
    ids_max: Count = Field(
        default=125_000,
        description="ids remembered at least, of each part of Redis, or of a node in memory",
    )
    ids_max_age: Seconds = Field(
        default=86_400,
        description="an id is remembered, if there is room; a number without a unit is seconds",
    )
    topics_max: Count = Field(default=100_000, description="topics whose log is kept")

    # connections
    server_ping_interval: Milliseconds = Field(default=15_000, description="WebSocket pings")
    sse_keepalive: Milliseconds = Field(default=15_000, description="comments on an event stream")
    send_queue_bytes: Size = Field(
        default=4_194_304, description="unsent bytes that make a slow consumer"
    )
    max_frame: Size = Field(default=8_388_608, description="bytes of an inbound WebSocket message")
    header_timeout: Milliseconds = Field(default=10_000, description="for the head of a request")
    body_timeout: Milliseconds = Field(default=30_000, description="for the body of a request")
    http_idle_timeout: Milliseconds = Field(
        default=75_000, description="idle keep-alive connections"
    )
    linger_timeout: Wait = Field(
        default=2_000, description="a refused body is read on, so that the answer gets through"
    )
    max_headers: int = Field(default=64, ge=8, le=1024, description="header lines of a request")
    drain_timeout: Wait = Field(default=5_000, description="for open work at shutdown")
    drain_spread: Wait | None = Field(
        default=None,
        description="connections end over so long at shutdown, 3/4 of `drain_timeout` at most;"
        " default: `3s` on Redis, else 0",
    )
    drain_notice: Wait = Field(
        default=0, description="`/readyz` says 503 so long before nothing new is taken"
    )

    # what they say
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(
            lambda v: {"warn": "warning"}.get(v.lower(), v.lower()) if isinstance(v, str) else v
        ),
    ] = Field(default="info", description="least severe log lines")
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="auto: text on a terminal, JSON otherwise"
    )
    tracing: Switch = Field(
        default=False,
        description="OpenTelemetry spans of messages that carry a sampled `traceparent`;"
        " `OTEL_EXPORTER_OTLP_ENDPOINT` and its kin say where to (extra `otel`)",
    )
    audit_topics: Items = Field(default=(), description="patterns whose events are audited")
    audit_file: Path | None = Field(default=None, description="audit log, one JSON object a line")
    audit_redis: Switch = Field(
        default=False, description="audit records in the stream `PREFIX:audit` of `redis_url`"
    )
    audit_redis_length: Count = Field(
        default=100_000, description="records that this stream keeps, about"
    )
    audit_kafka: Items = Field(
        default=(), description="audit records in Kafka: `host:port` of brokers (extra `kafka`)"
    )
    audit_kafka_topic: str = Field(
        default="hanzo-pubsub-audit",
        pattern=r"[A-Za-z0-9._-]{1,249}",
        description="topic of those",
    )
    audit_kafka_tls: Switch = Field(default=False, description="TLS with the brokers")
    audit_kafka_ca: Path | None = Field(
        default=None,
        description="authorities that brokers are trusted by, PEM; default: those of the system",
    )
    audit_kafka_cert: Path | None = Field(
        default=None, description="certificate that is shown to brokers, PEM"
    )
    audit_kafka_key: Path | None = Field(
        default=None, description="private key of that certificate, PEM, not encrypted"
    )
    audit_kafka_user: str | None = Field(
        default=None, min_length=1, description="user that is shown to brokers (SASL)"
    )
    audit_kafka_password: SecretStr | None = Field(
        default=None,
        description="of that user; as `HANZO_PUBSUB_AUDIT_KAFKA_PASSWORD` or in the file, for flags"
        " are seen by others",
    )
    audit_kafka_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        default="SCRAM-SHA-512", description="how the user is shown; PLAIN over TLS only"
    )
    audit_queue: Count = Field(default=10_000, description="audit records that wait for a sink")
    webhooks: tuple[Webhook, ...] = Field(
        default=(), description="receivers; a JSON list as a flag"
    )
    webhook_queue: Count = Field(default=10_000, description="events that wait for a receiver")
    webhook_batch: Count = Field(default=100, description="events of one request")
    webhook_timeout: Milliseconds = Field(default=5_000, description="a request may take")
    webhook_attempts: int = Field(default=5, ge=1, le=100, description="tries of one request")
    webhook_backoff: Milliseconds = Field(
        default=500, description="before the second try; then doubled"
    )
    faults: Switch = Field(default=False, description="let tests inject faults (POST /v1/faults)")

    @field_validator("webhooks", "history_classes", mode="before")
    @classmethod
    def _object_list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]

    @field_validator("event_stream", "hub")
    @classmethod
    def _address(cls, address: str | None) -> str | None:
        if address is not None:
            parse_address(address)
        return address

    @field_validator("sp_pub")
    @classmethod
    def _sp_url(cls, url: str | None) -> str | None:
        if url is not None:
            parse_sp_url(url)
        return url

    @field_validator("audit_kafka")
    @classmethod
    def _brokers(cls, brokers: tuple[str, ...]) -> tuple[str, ...]:
        for broker in brokers:
            if not _BROKER.fullmatch(broker):
                raise ValueError(f"{broker} is not `host:port`")
        return brokers

    @field_validator("iam_url", "iam_jwks_url")
    @classmethod
    def _url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("must be an http:// or https:// URL")
        return url

    @field_validator("ws_url")
    @classmethod
    def _socket(cls, url: str | None) -> str | None:
        # It stands in a Content-Security-Policy.
        if url is not None and not _SOCKET_URL.fullmatch(url):
            raise ValueError("must be a ws:// or wss:// URL, such as wss://pubsub.example.com/ws")
        return url

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for each in proxies:
            try:
                ip_network(each)
            except ValueError as error:
                raise ValueError(f"{error}; give addresses or networks, 10.0.0.0/24") from None
        return proxies

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin} is no origin as a browser sends it; write https://app.example.com:8443,"
                    " in small letters, with scheme and without path"
                )
        return origins

    @field_validator("jwt_claims")
    @classmethod
    def _claims(cls, claims: dict[str, str]) -> dict[str, str]:
        for name in claims:
            if name not in DEFAULT_CLAIMS:
                raise ValueError(f"there is no field {name}; known are {', '.join(DEFAULT_CLAIMS)}")
        return claims

    @field_validator("history_page_max")
    @classmethod
    def _page_max(cls, value: int) -> int:
        if value > 10_000:
            raise ValueError("must be at most 10000")
        return value

    @model_validator(mode="after")
    def _together(self, info: ValidationInfo) -> Self:
        problems = [] if info.context == ANYHOW else [*conflicts.conflicts(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def on_redis(self) -> bool:
        """Whether the backplane is `redis`."""
        return self.backplane == "redis" or (self.backplane is None and self.redis_url is not None)

    @property
    def needs_bus(self) -> bool:
        """Whether there are several workers, and no Redis that joins them."""
        return self.workers > 1 and not self.on_redis

    @property
    def spread(self) -> int:
        """Milliseconds over which connections end at shutdown, before `drain_timeout` bounds it."""
        if self.drain_spread is None:
            return SPREAD_AMONG_NODES if self.on_redis else 0
        return self.drain_spread

    @property
    def tls(self) -> bool:
        """Whether this server ends TLS itself."""
        return self.tls_cert is not None

    @property
    def jwks_url(self) -> str | None:
        """Where the keys of IAM are, if anywhere."""
        if self.iam_jwks_url is not None:
            return self.iam_jwks_url
        return None if self.iam_url is None else f"{self.iam_url.rstrip('/')}/.well-known/jwks.json"
