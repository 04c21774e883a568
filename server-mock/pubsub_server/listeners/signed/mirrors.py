"""Mirrors topics of a Bee node to this node's topics `signed.*`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.soc import keccak256
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.signed.addresses import Asked, hub_name
from pubsub_server.listeners.signed.drafts import draft_of
from pubsub_server.listeners.signed.upstreams import UpstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.auth.identity import Identity
    from pubsub_server.listeners.signed.modes import Parameters
    from pubsub_server.listeners.signed.relays import Relays
    from pubsub_server.service import Service
    from pubsub_server.tasks import Tasks

_LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
"""Seconds before the second attempt to reach the Bee node; the pause doubles each time."""
MAX_PAUSE: Final = 30.0
WAITING_MAX: Final = 1_000
"""Maximum messages of one topic that wait to be published."""


class Mirrors:
    """Reads the configured topics permanently, even without subscribers.

    The id of each message is derived from its frame. So several nodes of a cluster can mirror the
    same
    topic: the backplane drops the duplicates.

    Args:
        service: The hub.
        identity: Publishes the messages.
        relays: Opens the upstreams, and verifies messages.
        tasks: Runs one task per topic.
        topics: Id and owner of each topic, by its address.
        overflowed: Called when messages of a topic arrive faster than they can be published.
    """

    def __init__(
        self,
        service: Service,
        identity: Identity,
        relays: Relays,
        tasks: Tasks,
        topics: Mapping[bytes, Parameters],
        overflowed: Callable[[], None],
    ) -> None:
        self._service = service
        self._identity = identity
        self._relays = relays
        self._tasks = tasks
        self._topics = topics
        self._overflowed = overflowed

    @property
    def names(self) -> Sequence[str]:
        """The names of the topics in the hub."""
        return tuple(map(hub_name, self._topics))

    def start(self) -> None:
        """Start reading."""
        for topic, parameters in self._topics.items():
            self._tasks.keep(partial(self._mirror, Asked(topic, None, None), parameters))

    async def _mirror(self, asked: Asked, parameters: Parameters) -> None:
        pause = FIRST_PAUSE
        while True:
            opened, reason = await self._read(asked, parameters)
            if opened:
                pause = FIRST_PAUSE
            wait = pause * secrets.SystemRandom().uniform(0.5, 1)
            pause = min(2 * pause, MAX_PAUSE)
            _LOG.warning(
                "cannot read %s from the Bee node; next attempt in %.1f s: %s",
                *(asked.name, wait, reason),
            )
            await asyncio.sleep(wait)

    async def _read(self, asked: Asked, parameters: Parameters) -> tuple[bool, str]:
        """Publish the messages of one upstream.

        Returns:
            Whether it opened, and the reason of its end.
        """
        try:
            relay = await self._relays.enter(asked)
        except UpstreamError as error:
            return False, str(error)
        backlog = Backlog(self._overflowed)
        relay.add(backlog)
        try:
            while (frame := await backlog.next()) is not None:
                await self._publish(asked.name, frame, parameters)
        finally:
            relay.discard(backlog)
            self._relays.leave(relay)
        return True, backlog.reason

    async def _publish(self, name: str, frame: bytes, parameters: Parameters) -> None:
        draft = draft_of(name, frame, parameters, f"soc_{keccak256(frame).hex()}")
        while True:
            (answer,) = await self._service.publish(self._identity, [draft])
            if not isinstance(answer, ServiceError):
                return
            if answer.retry_after_ms is None:
                _LOG.warning("a message of %s is not published: %s", name, answer.message)
                return
            await asyncio.sleep(answer.retry_after_ms / 1000)


class Backlog:
    """See `relays.Listening`: received messages that are not published yet.

    Args:
        overflowed: Called when there are more than `WAITING_MAX`; the backlog then ends.

    Attributes:
        reason: The reason of the end.
    """

    def __init__(self, overflowed: Callable[[], None]) -> None:
        self.reason = ""
        self._overflowed = overflowed
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def relayed(self, frame: bytes) -> None:
        """See `relays.Listening`."""
        if self.reason:
            return
        if self._frames.qsize() >= WAITING_MAX:
            self._overflowed()
            self.cut_off("the topic brings messages faster than they can be published")
            return
        self._frames.put_nowait(frame)

    def cut_off(self, reason: str) -> None:
        """See `relays.Listening`."""
        if not self.reason:
            self.reason = reason
            self._frames.put_nowait(None)

    async def next(self) -> bytes | None:
        """The next frame; None at the end."""
        return await self._frames.get()
