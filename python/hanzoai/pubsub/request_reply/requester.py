"""`Requester`: the requests of one client, and the calls that wait for replies."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.errors import ClosedError, InvalidOption, OperationTimeout, RequestTimeout
from hanzoai.pubsub.request_reply.messages import (
    check_request_id,
    error_of,
    reply_topic,
    request,
    request_of,
    retention,
)
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.wire.ids import message_id

if TYPE_CHECKING:
    from hanzoai.pubsub.request_reply.client import Client
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.values import Gap, Message

logger = logging.getLogger("hanzoai.pubsub")

_TOPICS_MAX: Final = 100
"""Maximum subscribed reply topics; above it, the client leaves the least recently used one."""
_LATE_MAX: Final = 100
"""Maximum remembered requests without a reply, and maximum late replies kept for a retry."""
_NONCE_BYTES: Final = 8


@dataclass(slots=True)
class _Inbox:
    """The subscription to one reply topic, and the requests that wait for a reply on it."""

    subscription: Subscription
    reader: asyncio.Task[None] | None = None
    waiting: dict[str, asyncio.Future[Message]] = field(
        default_factory=dict[str, asyncio.Future["Message"]]
    )
    users: int = 0
    granted: bool = False
    """Whether the server has granted the subscription; no request is sent before."""


@dataclass(slots=True)
class _Unanswered:
    """A request whose call ended without a reply.

    A retry is published with the same ``ttl``: it is one message.
    """

    ttl: int
    reply: Message | None = None


class Requester:
    """Publishes requests of one client and passes each reply to the waiting call.

    Args:
        client: Publishes and subscribes.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nonce = secrets.token_hex(_NONCE_BYTES)
        self._inboxes: OrderedDict[str, _Inbox] = OrderedDict()
        # By reply topic and id: ids are separate for each topic.
        self._late: OrderedDict[tuple[str, str], _Unanswered] = OrderedDict()

    async def request(
        self,
        topic: str,
        data: Any,
        *,
        type: str,
        id: str | None,
        reply_to: str | None,
        timeout: float,
    ) -> Message:
        """Publish a request and wait for its reply; see ``PubSubClient.request``."""
        if id is None:
            id = message_id()
        else:
            check_request_id(id)
        where = reply_topic(topic, self._nonce) if reply_to is None else validate_topic(reply_to)
        earlier = self._late.get((where, id))
        if earlier is not None and earlier.reply is not None:
            return _opened(earlier.reply, topic)
        ttl = retention(timeout) if earlier is None else earlier.ttl
        clock = self._client.clock
        ends = clock.now() + timeout
        inbox = self._inbox(where)
        if id in inbox.waiting:
            raise InvalidOption(
                f"The request {id} still waits for its reply.",
                remedy="Use one `id` for one request at a time.",
                field="id",
            )
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        inbox.waiting[id] = reply

        def expire() -> None:
            if not reply.done():
                reply.set_exception(_timeout(topic, id, timeout, unsent=not inbox.granted))

        timer = clock.call_later(timeout, expire)
        inbox.users += 1
        message = request(type, data, id, where, ttl)
        asking = asyncio.ensure_future(self._ask(inbox, topic, message, ends))
        returned: Message | None = None
        try:
            first: set[asyncio.Future[Any]] = {asking, reply}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                await asking
            returned = await reply
            return _opened(returned, topic)
        except OperationTimeout as error:
            if isinstance(error, RequestTimeout):
                raise
            unsent = not inbox.granted or not error.outcome_unknown
            raise _timeout(topic, id, timeout, unsent=unsent) from error
        finally:
            timer.cancel()
            del inbox.waiting[id]
            inbox.users -= 1
            if returned is None:
                self._remember((where, id), ttl)
                if reply.done() and not reply.cancelled() and reply.exception() is None:
                    # It arrived as the call was cancelled.
                    self._receive(inbox, reply.result())
            _leave(asking)
            _leave(reply)

    async def _ask(self, inbox: _Inbox, topic: str, message: dict[str, Any], ends: float) -> None:
        """Subscribe to the replies, then publish the request."""
        while not inbox.granted:
            try:
                await inbox.subscription
                inbox.granted = True
            except OperationTimeout:
                # An outage may outlast `operation_timeout`; the timeout of the call ends the wait.
                if not inbox.subscription.active:
                    raise
        clock = self._client.clock
        await self._client.publish(topic, message, timeout=max(0.001, ends - clock.now()))

    def _inbox(self, topic: str) -> _Inbox:
        inbox = self._inboxes.get(topic)
        if inbox is None or not inbox.subscription.active:
            inbox = self._inboxes[topic] = _Inbox(self._client.subscribe(topic, on_gap=_ignore))
            inbox.reader = asyncio.create_task(
                self._read(topic, inbox), name="hanzoai.pubsub replies"
            )
        self._inboxes.move_to_end(topic)
        if len(self._inboxes) > _TOPICS_MAX:
            idle = next((name for name, one in self._inboxes.items() if not one.users), None)
            if idle is not None and idle != topic:
                left = self._inboxes.pop(idle)
                if left.reader is not None:
                    left.reader.cancel()
        return inbox

    async def _read(self, topic: str, inbox: _Inbox) -> None:
        error: BaseException = ClosedError(topic=topic)
        try:
            async for message in inbox.subscription:
                self._receive(inbox, message)
        except Exception as failure:
            error = failure
        finally:
            await inbox.subscription.unsubscribe()
            if self._inboxes.get(topic) is inbox:
                del self._inboxes[topic]
            for reply in inbox.waiting.values():
                if not reply.done():
                    reply.set_exception(error)

    def _receive(self, inbox: _Inbox, message: Message) -> None:
        id = request_of(message)
        if id is None:
            return
        reply = inbox.waiting.get(id)
        if reply is not None and not reply.done():
            reply.set_result(message)
        elif (late := self._late.get((message.topic, id))) is not None:
            late.reply = message

    def _remember(self, key: tuple[str, str], ttl: int) -> None:
        self._late.setdefault(key, _Unanswered(ttl))
        while len(self._late) > _LATE_MAX:
            self._late.popitem(last=False)


def _opened(reply: Message, topic: str) -> Message:
    error = error_of(reply, topic)
    if error is not None:
        raise error
    return reply


def _ignore(_: Gap) -> None:
    """The call whose reply was missed gets `RequestTimeout`."""


def _leave(future: asyncio.Future[Any]) -> None:
    """Ignore its result and its exception."""
    if not future.cancel() and not future.cancelled():
        future.exception()


def _timeout(topic: str, id: str, timeout: float, *, unsent: bool) -> RequestTimeout:
    what = "could not be sent" if unsent else "has no reply"
    return RequestTimeout(
        f"The request {id} on topic {topic} {what} within {timeout:g} s.",
        topic=topic,
        id=id,
        outcome_unknown=not unsent,
        remedy="Check the connection with `hanzo-pubsub doctor`." if unsent else None,
    )


__all__ = ["Requester"]
