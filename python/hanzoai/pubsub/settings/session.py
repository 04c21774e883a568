"""Settings of a session. Times in milliseconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hanzoai.pubsub.generated.defaults import CLIENT

TransportChoice: TypeAlias = Literal["auto", "websocket", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Settings of a session; the defaults are those of `spec/defaults.yaml`.

    Attributes:
        renewable: Asking for a token again may give another one; False for a fixed token.
        transport: `auto` begins with a WebSocket and falls back to SSE.
        client_name: Sent to the server in `auth`.
        client_version: Sent in `auth`.
        client_lang: Sent in `auth`.
        send_queue_messages: Maximum unsent publishes, and maximum sent and unanswered ones.
        send_queue_bytes: The same two limits in bytes.
    """

    renewable: bool = True
    transport: TransportChoice = "auto"
    client_name: str = "hanzoai.pubsub"
    client_version: str | None = None
    client_lang: str | None = "python"
    fetch_timeout: int = CLIENT.fetch_timeout
    open_timeout: int = CLIENT.open_timeout
    close_timeout: int = CLIENT.close_timeout
    ping_interval: int = CLIENT.ping_interval
    pong_timeout: int = CLIENT.pong_timeout
    check_timeout: int = CLIENT.check_timeout
    retry_base: int = CLIENT.retry_base
    retry_cap: int = CLIENT.retry_cap
    call_interval: int = CLIENT.call_interval
    stable_after: int = CLIENT.stable_after
    suspend_after: int = CLIENT.suspend_after
    refresh_margin: int = CLIENT.refresh_margin
    fallback_after: int = CLIENT.fallback_after
    fallback_failures: int = CLIENT.fallback_failures
    short_life: int = CLIENT.short_life
    upgrade_after: int = CLIENT.upgrade_after
    upgrade_cap: int = CLIENT.upgrade_cap
    overlap: int = CLIENT.overlap
    remembered_ids: int = CLIENT.remembered_ids
    remembered_topics: int = CLIENT.remembered_topics
    send_queue_messages: int = CLIENT.send_queue_messages
    send_queue_bytes: int = CLIENT.send_queue_bytes
    held_messages: int = CLIENT.held_messages
    pace_interval: int = CLIENT.pace_interval
