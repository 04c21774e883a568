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
    """Token callback."""
    open_timeout: int = 5000
    """Dial and authenticate."""
    operation_timeout: int = 10000
    """Publish, subscribe, history, presence."""
    close_timeout: int = 5000
    """Drain."""
    ping_interval: int = 15000
    """The server gives up on a silent client after 30000."""
    pong_timeout: int = 10000
    check_timeout: int = 3000
    """For the pong when the platform says that the network is gone."""
    retry_base: int = 1000
    """Full jitter: U(0, min(cap, base * 2^attempt, max(2 * base, outage^2 / 160 s))), at most 2 * base while a publish waits, never below the server's retry_after."""
    retry_cap: int = 30000
    call_interval: int = 1000
    """A call of the program brings the next attempt forward, at most once in this time."""
    stable_after: int = 10000
    """Connected for so long, the attempt counter starts anew."""
    suspend_after: int = 120000
    refresh_margin: int = 45000
    """Renew the token so long before it ends, where no auth.expiring came."""
    fallback_after: int = 8000
    """A first WebSocket that is not open by then gives way to SSE, if HTTP answers."""
    fallback_failures: int = 2
    """Or after so many failed attempts, between which HTTP answers."""
    short_life: int = 3
    """The same once a WebSocket has worked in this process; connections that die before anything comes count too."""
    upgrade_after: int = 30000
    """SSE stays for so long, then a WebSocket is probed; the wait doubles with each probe."""
    upgrade_cap: int = 600000
    """Longest wait between two probes."""
    overlap: int = 5000
    """Replay so long before the newest message, against a server without seq."""
    remembered_ids: int = 1000
    """A topic, against a server without seq."""
    remembered_topics: int = 20000
    """A subscription, least recently used first to go; what comes of others later is unproven."""
    send_queue_messages: int = 1000
    send_queue_bytes: int = 1048576
    receive_queue_messages: int = 1024
    """A subscription."""
    receive_queue_bytes: int = 8388608
    held_messages: int = 10000
    """Live messages of one subscription that wait for its replay."""
    max_frame: int = 33554432
    """Inbound; a replay of 100 messages of 256 KB is 25.6 MB."""
    pace_interval: int = 100
    """How often the publish budget is refilled."""
    rest_attempts: int = 4
    history_page: int = 100


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of the service; `auth.ok` may say otherwise. Milliseconds and bytes where not said."""

    max_payload: int = 262144
    """Bytes of JSON-encoded data."""
    publish_rate_user: int = 10
    """A second."""
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
