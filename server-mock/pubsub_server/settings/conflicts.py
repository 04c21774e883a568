"""Finds settings that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pubsub_server.settings.config import Settings

_LISTENERS: Final = ("event_stream", "hub", "sp_pub", "signed")
"""Listeners that `listener_identities` may name."""

_ONE_WORKER: Final = ("event_stream", "hub", "sp_pub", "signed_listen", "signed_upstream_topics")
"""Settings that need a single process."""

_REQUIRES: Final = {
    "signed_listen": "signed",
    "signed_upstream": "signed",
    "signed_upstream_topics": "signed_upstream",
    "redis_cluster": "redis_url",
    "redis_durable": "redis_url",
    "audit_redis": "redis_url",
}
"""Settings that have no effect without another one."""


def conflicts(settings: Settings) -> Iterator[str]:
    """Conflicts between settings that are each valid, one line each."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        given, missing = (
            ("tls_cert", "tls_key") if settings.tls_cert is not None else ("tls_key", "tls_cert")
        )
        yield f"{given} is set without {missing}; TLS needs both"
    if settings.tls_cert is not None and settings.behind_tls_proxy:
        yield (
            "behind_tls_proxy is set with tls_cert; leave out behind_tls_proxy if this server"
            " terminates TLS, or tls_cert and tls_key if the proxy does"
        )
    if settings.http_port == settings.ws_port != 0:
        yield f"http_port and ws_port are both {settings.http_port}; use different ports"
    for name in _LISTENERS:
        if name in settings.listener_identities and not getattr(settings, name):
            yield f"listener_identities names {name}, which is off; set {name}, or leave it out"
    for name in _ONE_WORKER:
        if settings.workers > 1 and getattr(settings, name):
            yield f"{name} is set with {settings.workers} workers; run one worker"
    for name, required in _REQUIRES.items():
        if getattr(settings, name) and not getattr(settings, required):
            yield f"{name} is set without {required}; set {required}, too"
    if settings.signed_upstream_topics and "signed" not in settings.listener_identities:
        yield (
            "signed_upstream_topics is set, but listener_identities does not name signed; add"
            " the identity that publishes the messages, such as"
            ' {"signed": {"user": "bee", "kind": "service"}}'
        )
    if settings.signed_listen is not None and not settings.pubsub_broker_mode:
        yield (
            "signed_listen is set while pubsub_broker_mode is false; leave signed_listen out,"
            " or let this node be a broker"
        )
    if settings.listener_client_ca is not None and settings.tls_cert is None:
        yield "listener_client_ca is set without tls_cert and tls_key; set these, too"
    if settings.max_payload > settings.max_frame:
        yield (
            f"max_payload ({settings.max_payload}) is larger than max_frame ({settings.max_frame}),"
            " so the server rejects such messages; raise max_frame, or lower max_payload"
        )
    if settings.history_page_default > settings.history_page_max:
        yield (
            f"history_page_default ({settings.history_page_default}) is larger than"
            f" history_page_max ({settings.history_page_max}); lower it, or raise history_page_max"
        )
    if settings.redis_url is not None:
        yield from redis_url_conflicts(settings.redis_url.get_secret_value())
    elif settings.backplane == "redis":
        yield "backplane is `redis` without redis_url; set redis_url"
    if settings.workers > 1 and settings.backplane == "memory":
        yield (
            f"backplane is `memory` with {settings.workers} workers, which it cannot connect;"
            " leave out backplane, or run one worker"
        )
    if settings.node_timeout < 2 * settings.node_heartbeat:
        yield (
            f"node_timeout ({settings.node_timeout} ms) is less than twice node_heartbeat"
            f" ({settings.node_heartbeat} ms); raise node_timeout, or lower node_heartbeat"
        )
    if settings.audit_topics and not (
        settings.audit_file or settings.audit_redis or settings.audit_kafka
    ):
        yield (
            "audit_topics is set without audit_file, audit_redis or audit_kafka; set one of them"
        )
    yield from _mesh(settings)
    yield from _kafka(settings)


def redis_url_conflicts(url: str) -> Iterator[str]:
    """What is wrong with the scheme, the host or the port of `redis_url`, one line each."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises, if it is not a port
    except ValueError:
        yield (
            "redis_url has an invalid host or port; write redis://HOST:PORT, IPv6 as [ADDRESS], and"
            " / ? # @ in a user or password as %2F %3F %23 %40"
        )
        return
    if parts.scheme not in {"redis", "rediss", "unix"}:
        yield "redis_url must begin with redis://, rediss:// or unix://"


def _mesh(settings: Settings) -> Iterator[str]:
    given = [
        name
        for name in ("mesh_listen", "mesh_peer", "mesh_advertise", "mesh_key", "mesh_tls_cert")
        if getattr(settings, name)
    ]
    if not settings.on_mesh:
        if given:
            yield f"{given[0]} is set without backplane `mesh`; set that, or leave it out"
        return
    if settings.mesh_listen is None:
        yield "backplane is `mesh` without mesh_listen; set the address for other nodes"
    if settings.workers > 1:
        yield (
            f"backplane is `mesh` with {settings.workers} workers; run one worker, and more nodes"
        )
    parts = ("mesh_tls_cert", "mesh_tls_key", "mesh_tls_ca")
    missing = [name for name in parts if getattr(settings, name) is None]
    if missing and len(missing) < len(parts):
        has = next(name for name in parts if name not in missing)
        yield f"{has} is set without {missing[0]}; TLS among nodes needs all three"
    if settings.mesh_advertise is not None and settings.mesh_advertise.endswith(":0"):
        yield "mesh_advertise has port 0; give the port that other nodes reach"


def _kafka(settings: Settings) -> Iterator[str]:
    given = [
        name
        for name in type(settings).model_fields
        if name.startswith("audit_kafka_")
        and getattr(settings, name) not in {None, False}
        # These have a default without a meaning of its own.
        and name not in {"audit_kafka_topic", "audit_kafka_mechanism"}
    ]
    if given and not settings.audit_kafka:
        yield f"{given[0]} is set without audit_kafka; set the brokers"
    for name in ("audit_kafka_ca", "audit_kafka_cert"):
        if name in given and not settings.audit_kafka_tls:
            yield f"{name} is set without audit_kafka_tls; it requires TLS"
    for one, other in (
        ("audit_kafka_cert", "audit_kafka_key"),
        ("audit_kafka_user", "audit_kafka_password"),
    ):
        if (one in given) != (other in given):
            has, lacks = (one, other) if one in given else (other, one)
            yield f"{has} is set without {lacks}; they belong together"
    if (
        settings.audit_kafka_user is not None
        and settings.audit_kafka_mechanism == "PLAIN"
        and not settings.audit_kafka_tls
    ):
        yield (
            "audit_kafka_mechanism is `PLAIN` without audit_kafka_tls: anyone on the network could"
            " read the password; set audit_kafka_tls, or a SCRAM mechanism"
        )
