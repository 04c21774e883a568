"""`Settings`: every listener, limit and deadline of the server, each with one name in all sources.

A setting `history_max_messages` is the flag `--history-max-messages`, the environment variable
`HANZO_PUBSUB_HISTORY_MAX_MESSAGES` and the key `history_max_messages` of the YAML file.
`sources.py` reads these; this module defines the valid values of each setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
)

from pubsub_server.settings.entries import HistoryClass, ListenerIdentity, Webhook
from pubsub_server.settings.formats import (
    Audiences,
    Brokers,
    Claims,
    Host,
    HttpUrl,
    Issuer,
    Key,
    ListenAddress,
    Networks,
    NodeAddress,
    NodeAddresses,
    Origins,
    PageSize,
    Peers,
    SignedTopics,
    SocketUrl,
    SpUrl,
    UpstreamUrl,
    WorkerTimeout,
)
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

ListenerName: TypeAlias = Literal["event_stream", "hub", "signed", "sp_pub"]
"""Listeners whose protocols have no tokens."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

SPREAD_AMONG_NODES = 3_000
"""Milliseconds; a single node ends all connections at once, as there is no other node for them."""


GROUPS: Final = {
    "host": "listeners",
    "event_stream": "other protocols",
    "backplane": "nodes",
    "dev": "authentication",
    "rules": "permissions and limits",
    "presence_timeout": "presence and history",
    "server_ping_interval": "connections",
    "log_level": "logs, audit, webhooks",
}
"""Headings of the settings in the help and the documentation, each with its first setting."""


class Settings(BaseModel):
    """All settings of a server, checked. Durations are milliseconds unless stated otherwise.

    Durations also take a unit (`500ms`, `5s`, `2m`, `1h`), sizes `KiB`, `MiB` and `GiB`, lists
    commas. Where HIP-56 gives a number, that is the default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    host: Host = Field(
        default="127.0.0.1",
        description="Address to listen on. `0.0.0.0` listens on all IPv4 interfaces, `::` on "
        "all IPv6 interfaces.",
    )
    http_port: Port = Field(
        default=8056, description="Port of the REST API and the event streams. 0 picks a free port."
    )
    ws_port: Port = Field(default=8057, description="Port of the WebSocket. 0 picks a free port.")
    tls_cert: Path | None = Field(
        default=None, description="Certificate chain, PEM. Requires `tls_key`."
    )
    tls_key: Path | None = Field(
        default=None, description="Private key of the certificate, PEM, not encrypted."
    )
    behind_tls_proxy: Switch = Field(
        default=False,
        description="Accept plaintext connections, because a proxy in front of the server "
        "terminates TLS.",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Addresses and networks of the proxies whose `X-Forwarded-For` header the "
        "server trusts. It then uses the client address of that header for the "
        "limits per address and the audit log. Empty ignores the header.",
    )
    ws_url: SocketUrl = Field(
        default=None,
        description="WebSocket URL that the server gives to browsers. Default: the host of the "
        "request, or of the proxy, with `ws_port`.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of server processes that share the ports. With 2 or more, they "
        "share state through `redis_url`, or through a private Redis or Valkey that"
        " the server starts (extra `workers`).",
    )
    worker_timeout: WorkerTimeout = Field(
        default=30_000,
        description="Time without an answer after which the supervisor kills a worker and starts "
        "another one. It asks each worker six times in this time. At least `1s`; 0 never kills "
        "one.",
    )
    cors_origins: Origins = Field(
        default=("*",),
        description="Origins whose pages may use the HTTP API and the WebSocket. `*` allows all.",
    )
    event_stream: ListenAddress = Field(
        default=None,
        description="Address of the event stream protocol: a port on loopback, `HOST:PORT` or "
        "`unix:PATH`. Port 0 picks a free port. Default: off.",
    )
    hub: ListenAddress = Field(
        default=None,
        description="Address of the hub protocol of pub0sub, in the same format. Default: off.",
    )
    sp_pub: SpUrl = Field(
        default=None,
        description="URL that SP subscribers (NNG) dial to receive all topics: "
        "`tcp://HOST:PORT`, `ipc://PATH` or `abstract://NAME`. Default: off.",
    )
    signed: Switch = Field(
        default=False,
        description="Serve signed topics: SOC frames on WebSockets at `/pubsub/TOPIC` of the"
        " WebSocket port. Messages on `signed.*` are verified; forged ones are rejected.",
    )
    signed_listen: ListenAddress = Field(
        default=None,
        description="Address on which other nodes open streams to this broker of signed topics:"
        " a port on loopback, `HOST:PORT` or `unix:PATH`. Port 0 picks a free port."
        " Default: off.",
    )
    signed_upstream: UpstreamUrl = Field(
        default=None,
        description="URL of `/pubsub/` on a Bee node, such as"
        " `ws://127.0.0.1:1633/pubsub/?peer=…`. Signed sockets that name no `peer` then read"
        " and publish there. Default: this node is the broker.",
    )
    signed_upstream_topics: SignedTopics = Field(
        default=(),
        description="Topics of the Bee node that this node publishes on `signed.*`, as `OWNER:ID`."
        " OWNER is 40 hex digits. ID is 64 hex digits, or another text, which is hashed. The entry"
        " `signed` of `listener_identities` is the publisher.",
    )
    signed_peers: Peers = Field(
        default=(),
        description="Brokers that the `peer` of a socket may name, as `HOST:PORT`; `*` allows"
        " all. A development server also allows loopback addresses.",
    )
    pubsub_wire: Literal["head", "seed"] = Field(
        default="head",
        description="Type bytes that this broker sends on streams: `head`, of current Bee nodes,"
        " or `seed`, of nodes before July 2026. It reads both.",
    )
    pubsub_broker_mode: Switch = Field(
        default=True,
        description="Act as the broker of signed topics. If off, sockets must name a `peer`,"
        " and the server closes streams.",
    )
    pubsub_max_connections: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="Streams of a signed topic that this broker accepts; 0 sets no limit.",
    )
    listener_client_ca: Path | None = Field(
        default=None,
        description="Certificate authorities, PEM. The TLS listeners of these protocols "
        "then require a client certificate that one of them has signed. The name in"
        " the certificate can select the identity.",
    )
    listener_identities: dict[ListenerName, ListenerIdentity] = Field(
        default_factory=dict[ListenerName, ListenerIdentity],
        description="Identity of the connections of these protocols, which have no "
        "tokens: a JSON object by listener, or a file that contains one. Without an"
        " entry, a connection is unauthenticated and has only the permissions that "
        "the access rules grant to unauthenticated clients.",
    )
    backplane: Literal["memory", "redis", "mesh"] | None = Field(
        default=None,
        description="Where history, presence and limits are stored, and how nodes exchange "
        "messages. `mesh` connects nodes directly, see `mesh_listen`. Default: `redis` if "
        "`redis_url` is set, otherwise `memory`.",
    )
    mesh_listen: NodeAddress = Field(
        default=None,
        description="Address on which the node accepts connections from the other nodes of a "
        "mesh: a port (loopback) or `HOST:PORT`. 0 picks a free port.",
    )
    mesh_peer: NodeAddresses = Field(
        default=(),
        description="`HOST:PORT` of nodes of the mesh. One is enough: the node learns the others "
        "from it.",
    )
    mesh_advertise: NodeAddress = Field(
        default=None,
        description="`HOST:PORT` at which other nodes reach this one, behind a proxy or NAT. "
        "Default: `mesh_listen`, or the host of the connection if that listens on all interfaces.",
    )
    mesh_heartbeat: Milliseconds = Field(
        default=5_000,
        description="Interval between heartbeats to each node of the mesh. The node closes a "
        "connection after three intervals without a frame from the peer.",
    )
    mesh_ack_timeout: Milliseconds = Field(
        default=1_000,
        description="Timeout for a node to acknowledge a subscription. The node sends it again up "
        "to three times, then closes the connection. A `subscribe` waits for the acknowledgements "
        "for at most this long.",
    )
    mesh_linger: Wait = Field(
        default=5_000,
        description="Time that a node stays subscribed at the other nodes after its last "
        "subscriber of a topic has left. A client that reconnects in this time has no gap. 0 "
        "unsubscribes immediately.",
    )
    mesh_queue_bytes: Size = Field(
        default=33_554_432,
        description="Maximum unsent bytes per node of the mesh. The node closes a connection "
        "above it.",
    )
    mesh_key: Key | None = Field(
        default=None,
        description="Shared key of the nodes, at least 16 characters. Set it in "
        "`HANZO_PUBSUB_MESH_KEY` or in the file, because other users can see flags.",
    )
    mesh_tls_cert: Path | None = Field(
        default=None, description="Certificate that the node presents to other nodes, PEM."
    )
    mesh_tls_key: Path | None = Field(
        default=None, description="Private key of `mesh_tls_cert`, PEM, not encrypted."
    )
    mesh_tls_ca: Path | None = Field(
        default=None,
        description="Certificate authorities, PEM. Other nodes must present a certificate from "
        "one of them.",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="URL of Redis 7 or later: `redis://`, `rediss://` or `unix://`.",
    )
    redis_cluster: Switch = Field(default=False, description="`redis_url` names a Redis Cluster.")
    redis_durable: Switch = Field(
        default=False,
        description="Redis keeps every acknowledged write across a restart (`appendonly yes`, "
        "`appendfsync always`). If off, the server reports a gap on each topic "
        "after a restart of Redis.",
    )
    redis_prefix: str = Field(
        default="hanzo-pubsub",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Prefix of all Redis keys: at most 64 letters, digits, `_` and `-`. Services "
        "that share a Redis need different prefixes.",
    )
    redis_shards: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Number of shards of the Redis keys. Use the same number on all nodes, and "
        "never change it: a change loses the stored history.",
    )
    node_heartbeat: Milliseconds = Field(
        default=2_000, description="Interval between the heartbeats that each node writes to Redis."
    )
    node_timeout: Milliseconds = Field(
        default=8_000,
        description="Time without a heartbeat after which the other nodes remove a node, and "
        "its members leave presence. Use the same value on all nodes, at least "
        "twice `node_heartbeat`.",
    )

    feed_timeout: Annotated[Milliseconds, Field(ge=500)] = Field(
        default=15_000,
        description="Time without its own test messages from Redis after which a node is not"
        " ready. It then closes its connections, so that clients reconnect to another node."
        " At least `500ms`.",
    )

    dev: Switch = Field(
        default=False,
        description="Development mode: also accept tokens of `hanzo-pubsub token`, listen on "
        "loopback only, and let every user use `demo.**`, `dev.**` and `signed.**`.",
    )
    dev_key_file: Path | None = Field(
        default=None,
        description="Key that signs development tokens. The server creates the file on "
        "first use; its folder must exist.",
    )
    iam_url: HttpUrl = Field(
        default=None, description="Base URL of IAM, the identity provider that signs the tokens."
    )
    iam_jwks_url: HttpUrl = Field(
        default=None,
        description="URL of the JWKS of IAM. Default: `iam_url` with `/.well-known/jwks.json`.",
    )
    jwt_audience: Audiences | None = Field(
        default=None,
        description="Accepted values of the `aud` claim. Default: accept any audience.",
    )
    jwt_issuer: Issuer | None = Field(
        default=None,
        description="Required value of the `iss` claim. Default: accept any issuer.",
    )
    jwt_claims: Claims = Field(
        default_factory=dict,
        description="Map of identity field to claim name, if your IAM uses other claim names.",
    )
    jwt_leeway: Wait = Field(
        default=5_000,
        description="Tolerated clock difference for the `nbf` and `iat` claims. 0 tolerates none.",
    )
    jwks_max_age: Milliseconds = Field(
        default=600_000,
        description="Interval at which the server refreshes the keys of IAM in the background.",
    )
    jwks_min_interval: Wait = Field(
        default=10_000,
        description="Minimum time between two fetches of the keys of IAM, even if tokens name "
        "unknown keys. 0 sets no minimum. Until the first fetch succeeds, the server fetches again "
        "after 1 s, 2 s, 4 s and so on, and this is the maximum.",
    )
    jwks_timeout: Milliseconds = Field(
        default=5_000,
        description="Timeout of one fetch of the keys of IAM. A token with an unknown key waits"
        " for the fetch, at most half of `auth_deadline`.",
    )
    token_memory: Wait = Field(
        default=5_000,
        description="How long the server caches the result of verifying a JWT. 0 disables the "
        "cache.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="File with the hashes of API keys, YAML or JSON. The server reloads it when"
        " it changes.",
    )
    auth_deadline: Milliseconds = Field(
        default=5_000,
        description="Time that a client has to authenticate after it opens a WebSocket. The "
        "server then closes the connection with `auth_timeout`.",
    )
    expiring_notice: Wait = Field(
        default=60_000,
        description="How long before a token expires the server sends `auth.expiring`, at most "
        "half of the remaining lifetime. 0 sends it at the expiry.",
    )

    rules: Path | None = Field(
        default=None, description="Access rules, YAML. Default: the rules of HIP-56."
    )
    contract: Path | None = Field(
        default=None,
        description="Topic contract, YAML. Payloads that do not match the schema of their topic "
        "are rejected with `schema`. Default: payloads are not checked.",
    )
    max_payload: Size = Field(
        default=262_144, description="Maximum size of the JSON-encoded `data` of a message."
    )
    publish_rate_user: Rate = Field(
        default=10,
        description="Maximum publishes per second of each connection of a user, and of all REST "
        "requests of a user together.",
    )
    publish_rate_service: Rate = Field(
        default=100,
        description="Maximum publishes per second of each connection of a service, and of all "
        "its REST requests together.",
    )
    publish_rate_bulk: Rate = Field(
        default=10_000,
        description="Maximum messages per second in REST batches for a user with the `bulk` claim.",
    )
    publish_burst: Milliseconds = Field(
        default=1_000,
        description="Size of the burst above the rate limits, as time. A user who has not "
        "published for this long may publish as many messages at once as the limit allows in "
        "this time.",
    )
    connections_per_user: Count = Field(
        default=100, description="Maximum open connections of a user."
    )
    connections_per_org: Count = Field(
        default=10_000, description="Maximum open connections of an organization."
    )
    org_limits: dict[str, Count] = Field(
        default_factory=dict,
        description="Maximum open connections of individual organizations, which overrides "
        "`connections_per_org`.",
    )
    max_connections: Count = Field(
        default=100_000,
        description="Maximum open connections per listener and process. The server answers "
        "further connections with 503. Unfinished TLS handshakes count, too.",
    )
    unauthenticated_per_address: Count | None = Field(
        default=None,
        description="Maximum open connections without authentication per client address and "
        "listener. The server answers further connections with 429. The same number applies to "
        "unfinished TLS handshakes; the server cuts further ones. Default: 1,000."
        " With `behind_tls_proxy` and without `trusted_proxies` there is no limit, "
        "because all clients have the address of the proxy.",
    )
    unauthenticated_bytes: Size = Field(
        default=8_388_608,
        description="Maximum bytes that a listener buffers per client address before "
        "authentication.",
    )
    max_subscriptions: Count = Field(
        default=1_000, description="Maximum subscriptions per connection."
    )
    held_per_user: Count = Field(
        default=50, description="Maximum long-polling requests for positions per user and node."
    )
    max_batch: Count = Field(default=1_000, description="Maximum messages per batch.")
    max_batch_bytes: Size = Field(default=8_388_608, description="Maximum size of a batch request.")

    presence_timeout: Milliseconds = Field(
        default=30_000,
        description="Idle timeout: the server closes a connection that sends no bytes for this "
        "long.",
    )
    program_timeout: Wait = Field(
        default=120_000,
        description="Timeout for a hung program: the server closes a connection that answers "
        "pings but sends no frame for this long. 0 disables it.",
    )
    presence_grace: Wait = Field(
        default=5_000,
        description="Time between a lost connection and its `leave`. A client that reconnects "
        "within it stays present. 0 sends `leave` immediately.",
    )
    presence_max_members: Count = Field(default=10_000, description="Maximum members per topic.")
    history_max_messages: int = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description="Maximum messages retained per topic. 0 retains none.",
    )
    history_max_age: Seconds = Field(
        default=3_600,
        description="Time that a message is retained. A number without a unit is seconds. 0 "
        "retains none.",
    )
    history_classes: tuple[HistoryClass, ...] = Field(
        default=(),
        description="Retention of certain topics. The first entry with a matching pattern "
        "applies. A flag takes a JSON list; `max_age` without a unit is seconds.",
    )
    history_max_bytes: Size = Field(
        default=1_073_741_824,
        description="Maximum size of all retained messages in memory. The oldest are removed "
        "first.",
    )
    history_page_default: Count = Field(
        default=50, description="Messages per page of history, if the request has no `limit`."
    )
    history_page_max: PageSize = Field(
        default=500, description="Maximum messages per page of history, at most 10,000."
    )
    ids_max: Count = Field(
        default=125_000,
        description="Number of message ids kept to detect duplicates, per Redis shard, or per "
        "node in memory.",
    )
    ids_max_age: Seconds = Field(
        default=86_400,
        description="Time that a message id is kept to detect duplicates, within `ids_max`. A "
        "number without a unit is seconds. 0 keeps none.",
    )
    topics_max: Count = Field(
        default=100_000,
        description="Maximum topics with history in memory, and maximum names that another node "
        "of a mesh subscribes to. The least recently used topic is removed first. On Redis, "
        "`history_max_age` and the memory of Redis limit the topics.",
    )

    server_ping_interval: Milliseconds = Field(
        default=15_000,
        description="Interval between the pings that the server sends on a WebSocket.",
    )
    sse_keepalive: Milliseconds = Field(
        default=15_000,
        description="Interval between the comments that the server sends on an event stream to "
        "keep it open.",
    )
    send_queue_bytes: Size = Field(
        default=4_194_304,
        description="Maximum unsent bytes per connection. The server closes a connection above "
        "it with `slow_consumer`.",
    )
    max_frame: Size = Field(
        default=8_388_608, description="Maximum size of a WebSocket message from a client."
    )
    header_timeout: Milliseconds = Field(
        default=10_000, description="Timeout for receiving the headers of a request."
    )
    body_timeout: Milliseconds = Field(
        default=30_000, description="Timeout for receiving the body of a request."
    )
    http_idle_timeout: Milliseconds = Field(
        default=75_000, description="Idle timeout of keep-alive HTTP connections."
    )
    linger_timeout: Wait = Field(
        default=2_000,
        description="How long the server keeps reading a request body that it has rejected, so "
        "that the client receives the answer. 0 closes the connection immediately.",
    )
    max_headers: int = Field(
        default=64, ge=8, le=1024, description="Maximum header lines per request."
    )
    drain_timeout: Wait = Field(
        default=5_000,
        description="Time at shutdown for connections to finish. The server then cuts the "
        "remaining ones. 0 cuts them immediately.",
    )
    drain_spread: Wait | None = Field(
        default=None,
        description="Time over which the server closes its connections at shutdown, so that "
        "clients don't all reconnect at once. The server uses at most 3/4 of `drain_timeout`. 0 "
        "closes all at once. Default: `3s` on Redis and in a mesh, otherwise 0.",
    )
    drain_notice: Wait = Field(
        default=0,
        description="Time at shutdown during which `/readyz` already answers 503 and the server"
        " still accepts connections, so that a balancer can remove it. 0 skips this"
        " step.",
    )

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(
            lambda v: {"warn": "warning"}.get(v.lower(), v.lower()) if isinstance(v, str) else v
        ),
    ] = Field(default="info", description="Minimum severity of log lines.")
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="Format of log lines. `auto` writes text to a terminal and JSON otherwise.",
    )
    tracing: Switch = Field(
        default=False,
        description="Record OpenTelemetry spans for messages with a sampled `traceparent`. Set "
        "the destination with `OTEL_EXPORTER_OTLP_ENDPOINT` and the other "
        "OpenTelemetry variables (extra `otel`).",
    )
    audit_topics: Items = Field(
        default=(), description="Topic patterns to audit. Empty audits nothing."
    )
    audit_file: Path | None = Field(
        default=None, description="Audit log file, one JSON object per line."
    )
    audit_redis: Switch = Field(
        default=False,
        description="Write audit records to the stream `PREFIX:audit` of `redis_url`.",
    )
    audit_redis_length: Count = Field(
        default=100_000, description="Approximate number of records that this stream retains."
    )
    audit_kafka: Brokers = Field(
        default=(),
        description="Kafka brokers to write audit records to, as `host:port` (extra `kafka`).",
    )
    audit_kafka_topic: str = Field(
        default="hanzo-pubsub-audit",
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="Kafka topic of the audit records.",
    )
    audit_kafka_tls: Switch = Field(default=False, description="Connect to the brokers with TLS.")
    audit_kafka_ca: Path | None = Field(
        default=None,
        description="Certificate authorities that sign the certificates of the brokers, PEM. "
        "Default: those of the system.",
    )
    audit_kafka_cert: Path | None = Field(
        default=None, description="Client certificate for the brokers, PEM."
    )
    audit_kafka_key: Path | None = Field(
        default=None, description="Private key of the client certificate, PEM, not encrypted."
    )
    audit_kafka_user: str | None = Field(
        default=None, min_length=1, description="User name for the brokers (SASL)."
    )
    audit_kafka_password: SecretStr | None = Field(
        default=None,
        description="Password of that user. Set it with `HANZO_PUBSUB_AUDIT_KAFKA_PASSWORD` or "
        "in the file: other users of the machine can read flags.",
    )
    audit_kafka_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        default="SCRAM-SHA-512", description="SASL mechanism. `PLAIN` requires TLS."
    )
    audit_queue: Count = Field(
        default=10_000,
        description="Maximum audit records that wait for a sink. Further records are dropped "
        "and counted.",
    )
    webhooks: tuple[Webhook, ...] = Field(
        default=(),
        description="Webhook receivers: objects with `url`, `secret`, `topics` and `events`. A "
        "flag takes a JSON list.",
    )
    webhook_queue: Count = Field(
        default=10_000,
        description="Maximum events that wait for a receiver, within 64 MiB. Further events are "
        "dropped and counted.",
    )
    webhook_batch: Count = Field(default=100, description="Maximum events per webhook request.")
    webhook_timeout: Milliseconds = Field(
        default=5_000, description="Timeout of one webhook request."
    )
    webhook_attempts: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Number of attempts for a webhook request, including the first. Its events "
        "are then dropped and counted.",
    )
    webhook_backoff: Milliseconds = Field(
        default=500,
        description="Delay before the second attempt. It doubles with each further attempt.",
    )
    faults: Switch = Field(
        default=False,
        description="Let administrators inject faults with `POST /v1/faults`. For tests only.",
    )

    @field_validator("webhooks", "history_classes", mode="before")
    @classmethod
    def _object_list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]

    @property
    def on_redis(self) -> bool:
        """Whether the backplane is `redis`."""
        return self.backplane == "redis" or (self.backplane is None and self.redis_url is not None)

    @property
    def on_mesh(self) -> bool:
        """Whether the backplane is `mesh`."""
        return self.backplane == "mesh"

    @property
    def needs_bus(self) -> bool:
        """Whether there are several workers without a Redis that connects them."""
        return self.workers > 1 and not self.on_redis

    @property
    def spread(self) -> int:
        """Milliseconds over which connections end at shutdown, before `drain_timeout` limits it."""
        if self.drain_spread is None:
            return SPREAD_AMONG_NODES if self.on_redis or self.on_mesh else 0
        return self.drain_spread

    @property
    def tls(self) -> bool:
        """Whether this server terminates TLS itself."""
        return self.tls_cert is not None

    @property
    def jwks_url(self) -> str | None:
        """The URL of IAM's keys, if there is one."""
        if self.iam_jwks_url is not None:
            return self.iam_jwks_url
        return None if self.iam_url is None else f"{self.iam_url.rstrip('/')}/.well-known/jwks.json"
