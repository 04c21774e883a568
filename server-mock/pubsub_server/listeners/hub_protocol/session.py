"""One connection of the hub protocol: requests are handled and answered in order."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.hub.codec import (
    ADD,
    SUBSCRIBE,
    Add,
    Publish,
    Published,
    Push,
    Remove,
    Removed,
    Request,
    RequestDecoder,
    Subscribe,
    encode,
)
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.byte_session import ByteSession
from pubsub_server.listeners.byte_topics import hub_payload, hub_topic, shown
from pubsub_server.listeners.hub_protocol.encoder import answer, reference
from pubsub_server.shared.requests import Draft, SubscribeRequest, UnsubscribeRequest

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Coroutine, Sequence

    from pubsub_server.backplane import Published as Taken
    from pubsub_server.listeners.byte_connections import ByteConnections
    from pubsub_server.listeners.local_topics import LocalTopics


class HubSession(ByteSession[Request]):
    """See `byte_session.ByteSession`.

    Args:
        shared: What all connections share.
        local: Subscriptions to topics that stay among these connections.
    """

    def __init__(self, shared: ByteConnections, local: LocalTopics[HubSession]) -> None:
        super().__init__(shared, RequestDecoder())
        self._local = local
        # Subscriber id of this connection; 0 before it subscribes.
        self._id = 0
        # All its subscriptions, including those of the hub.
        self._topics: set[bytes] = set()

    def handle(self, requests: deque[Request]) -> Coroutine[Any, Any, None] | None:
        """See `byte_session.ByteSession`."""
        match requests.popleft():
            case Publish(topics, data):
                return self._publish(topics, data)
            case _ if self.lost:
                pass
            case Subscribe(topics):
                if topics and not self._id:
                    self._id = secrets.randbits(63) | 1
                self._subscribe(SUBSCRIBE, self._id if topics else 0, topics)
            case Add(id_, topics):
                # Ignore the id of another client.
                self._subscribe(ADD, id_, topics if id_ and id_ == self._id else ())
            case Remove(id_, topics):
                self._unsubscribe(topics if id_ and id_ == self._id else ())
        return None

    def left(self) -> None:
        """See `byte_session.ByteSession`."""
        for topic in self._topics:
            self._local.discard(self, topic)
        self._topics.clear()

    # ------------------------------------------------------------ subscribing

    def _subscribe(self, opcode: int, id: int, topics: Sequence[bytes]) -> None:
        shared, kept = self._shared, 0
        named: list[str] = []
        for topic in dict.fromkeys(topics):
            if topic in self._topics:
                # The answer to the first request of a subscriber contains the count of its topics.
                kept += opcode == SUBSCRIBE
                continue
            name, text = hub_topic(topic), shown(topic)
            if not shared.policy.may_subscribe(self.identity, text):
                shared.warn_denied("read", self.identity, text)
                shared.service.note("subscribe", self.connection, text, "forbidden")
                continue
            if len(self._topics) >= shared.settings.max_subscriptions:
                shared.service.note("subscribe", self.connection, text, "subscription_limit")
                continue
            self._topics.add(topic)
            self._local.add(self, topic)
            if name is None:
                shared.service.note("subscribe", self.connection, text)
                kept += 1
            else:
                named.append(name)
        if named:
            request = SubscribeRequest(
                tuple(named), presence=False, ref=reference(opcode, id, kept)
            )
            shared.service.subscribe(self.connection, request)
        else:
            shared.service.send(self.connection, answer(opcode, id, kept, 0))

    def _unsubscribe(self, topics: Sequence[bytes]) -> None:
        shared = self._shared
        ended = [topic for topic in dict.fromkeys(topics) if topic in self._topics]
        named: list[str] = []
        for topic in ended:
            self._topics.discard(topic)
            self._local.discard(self, topic)
            name = hub_topic(topic)
            if name is None:
                shared.service.note("unsubscribe", self.connection, shown(topic))
            else:
                named.append(name)
        if named:
            shared.service.unsubscribe(self.connection, UnsubscribeRequest(tuple(named)))
        shared.service.send(self.connection, encode(Removed(len(ended))))

    # ------------------------------------------------------------ publishing

    async def _publish(self, topics: Sequence[bytes], data: bytes) -> None:
        payload = hub_payload(data, self._shared.settings.max_payload)
        reached = 0
        for topic in topics:
            if self.closing:
                return
            name = hub_topic(topic)
            if name is None or payload is None:
                reached += await self._keep(topic, data)
            else:
                reached += await self._one(Draft(name, "message", payload, None, None, None))
        if not self.closing:
            self._shared.service.send(self.connection, encode(Published(reached)))

    async def _one(self, draft: Draft) -> int:
        """Publish by the hub; returns the number of subscribers on this node."""
        shared = self._shared
        found = 0

        def answered(draft: Draft, answer: Taken | ServiceError) -> None:
            nonlocal found
            if not isinstance(answer, ServiceError):
                found = shared.service.reach(draft.topic)
            elif answer.code == "forbidden":
                shared.denied(self.identity, draft.topic)
            elif answer.code == "unavailable":
                # The count 0 would report a message without subscribers.
                self.break_off(answer.code)

        work = self.publish([draft], answered)
        if work is not None:
            await work
        return found

    async def _keep(self, topic: bytes, data: bytes) -> int:
        """Publish to the subscribers of this listener; returns their number."""
        shared, text = self._shared, shown(topic)
        if not shared.policy.may_publish(self.identity, text):
            shared.denied(self.identity, text)
            shared.service.note("publish", self.connection, text, "forbidden")
            return 0
        await self.within_rate()
        if self.closing:
            return 0
        shared.stayed()
        shared.service.note("publish", self.connection, text)
        push, reached = encode(Push(topic, data)), 0
        for session, _ in self._local.subscribers(topic):
            if not session.closing:
                shared.service.send(session.connection, push)
                reached += 1
        return reached
