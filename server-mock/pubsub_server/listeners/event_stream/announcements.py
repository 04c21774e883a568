"""Notifies webhooks of subscriptions and events of the event stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pubsub_server.listeners.byte_topics import shown

if TYPE_CHECKING:
    from pubsub_server.interfaces import HookEvent, Webhooks


class Announcements:
    """Announces to webhooks, if there are any.

    Args:
        webhooks: Receive subscriptions and events.
    """

    def __init__(self, webhooks: Webhooks | None) -> None:
        self._webhooks = webhooks

    def announce(self, event: HookEvent, topic: bytes, size: int | None = None) -> None:
        """Notify the webhooks that select the event."""
        hooks, name = self._webhooks, shown(topic)
        if hooks is not None and hooks.wants(event, name):
            body: dict[str, object] = {"topic": name}
            if size is not None:
                body["size"] = size
            hooks.notify(event, name, orjson.dumps(body))
