# Generated from spec/defaults.yaml by `make generate`; do not edit.
"""Every default of the SDKs and the limits of HIP-56. Milliseconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ClientDefaults:
    """Defaults of the SDKs; times in milliseconds, sizes in bytes."""

    protocol_version: int = 1
    fetch_timeout: int = 10000
    """Timeout of the token callback."""
    open_timeout: int = 5000
    """Timeout to connect and authenticate."""
    operation_timeout: int = 10000
    """Timeout of publish, subscribe, history and presence."""
    close_timeout: int = 5000
    """Time that close() waits for unsent publishes."""
    ping_interval: int = 15000
    """Interval between pings; the server closes an idle connection after 30000."""
    pong_timeout: int = 10000
    """Time to wait for the answer to a ping."""
    check_timeout: int = 3000
    """Time to wait for a pong after the platform reports that the network is offline."""
    retry_base: int = 1000
    """Full jitter: U(0, min(cap, base * 2^attempt, max(2 * base, outage^2 / 160 s))), at most 2 * base while a publish waits, never below the server's retry_after."""
    retry_cap: int = 30000
    call_interval: int = 1000
    """A call of the program starts the next attempt early, at most once in this time."""
    stable_after: int = 10000
    """The attempt counter resets after a connection of this length."""
    suspend_after: int = 120000
    refresh_margin: int = 45000
    """Time before the expiry at which the client renews the token, unless auth.expiring arrives first."""
    fallback_after: int = 8000
    """The client falls back to SSE if its first WebSocket is not open after this time and HTTP answers."""
    fallback_failures: int = 2
    """The client also falls back after this number of failed attempts, if HTTP answers."""
    short_life: int = 3
    """Replaces fallback_failures once a WebSocket has worked in this process."""
    upgrade_after: int = 30000
    """Time on SSE before the client probes a WebSocket; doubles with each probe."""
    upgrade_cap: int = 600000
    """Maximum time between two probes."""
    overlap: int = 5000
    """Time before the newest message from which a replay starts, with a server without seq."""
    remembered_ids: int = 1000
    """Message ids kept per topic, with a server without seq."""
    remembered_topics: int = 20000
    """Topics tracked per subscription, least recently used removed first; completeness is unknown for the others."""
    send_queue_messages: int = 1000
    send_queue_bytes: int = 1048576
    receive_queue_messages: int = 1024
    """Per subscription."""
    receive_queue_bytes: int = 8388608
    held_messages: int = 10000
    """Live messages per subscription that wait for its replay."""
    max_frame: int = 33554432
    """Inbound; a replay of 100 messages of 256 KB is 25.6 MB."""
    pace_interval: int = 100
    """Interval at which the publish budget is refilled."""
    rest_attempts: int = 4
    history_page: int = 100


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Default limits of the service; times in milliseconds, sizes in bytes."""

    max_payload: int = 262144
    """Bytes of JSON-encoded data."""
    publish_rate_user: int = 10
    """Per second."""
    publish_rate_service: int = 100
    connections_per_user: int = 100
    connections_per_org: int = 10000
    max_topic: int = 255
    """Bytes."""
    auth_deadline: int = 5000
    presence_timeout: int = 30000
    presence_grace: int = 5000
    expiring_notice: int = 60000
    history_max_messages: int = 100
    history_max_age: int = 3600
    """Seconds."""
    history_page_default: int = 50
    history_page_max: int = 500
    max_batch: int = 1000
    max_subscriptions: int = 1000
    server_ping_interval: int = 15000
    sse_keepalive: int = 15000


CLIENT: Final = ClientDefaults()
LIMITS: Final = ServiceLimits()
