"""Publishes of one connection of a byte protocol, in order and not faster than its rate.

These protocols cannot ask a publisher to repeat a message, so the server repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from pubsub_server.errors import ServiceError
from pubsub_server.shared.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pubsub_server.backplane import Published
    from pubsub_server.interfaces import Identity
    from pubsub_server.service import Service
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import Draft

    Result = Published | ServiceError

AT_ONCE: Final = 64
"""Maximum publishes passed to the hub at once."""
PATIENCE: Final = 60.0
"""Seconds without a success after which publishes are not repeated for an unavailable store."""


class Publisher(Protocol):
    """A session that publishes."""

    @property
    def identity(self) -> Identity:
        """Who publishes."""
        ...

    @property
    def connection(self) -> Connection:
        """The hub's connection of an open session."""
        ...

    @property
    def closing(self) -> bool:
        """Whether it has ended."""
        ...

    async def nap(self, seconds: float) -> None:
        """Wait. A session that ends may return earlier."""
        ...


def publish(
    publisher: Publisher,
    service: Service,
    drafts: Sequence[Draft],
    answered: Callable[[Draft, Result], None],
) -> Coroutine[Any, Any, None] | None:
    """Publish in order; wait while the rate is exceeded, and up to `PATIENCE` for the store.

    Args:
        publisher: Its session.
        service: The hub.
        drafts: At most `AT_ONCE`.
        answered: Called once per draft, in order.

    Returns:
        An awaitable, unless all are done.
    """
    answer: Answer[list[Result]] = Answer()
    service.put(publisher.identity, drafts, publisher.connection, answer)
    results = answer.here
    if results is None or any(_wait(each, True) for each in results):
        return _go_on(publisher, service, drafts, answer, answered)
    for draft, result in zip(drafts, results, strict=True):
        answered(draft, result)
    return None


async def _go_on(
    publisher: Publisher,
    service: Service,
    drafts: Sequence[Draft],
    answer: Answer[list[Result]],
    answered: Callable[[Draft, Result], None],
) -> None:
    results = tried = await answer
    size = len(drafts)
    done = 0
    give_up = service.clock() + PATIENCE
    while True:
        patient = service.clock() < give_up
        while done < len(drafts) and _wait(results[done], patient) is None:
            answered(drafts[done], results[done])
            done += 1
            give_up = service.clock() + PATIENCE
        if done == len(drafts):
            return
        wait = next(filter(None, (_wait(each, patient) for each in tried)), None)
        if wait is not None:
            # Try a single message until it is granted, because each rejection is counted and
            # audited.
            size = 1
            await publisher.nap(wait)
        else:
            size *= 2
        if publisher.closing:
            return
        again = [at for at in range(done, len(drafts)) if _wait(results[at], patient)][:size]
        some = [drafts[at] for at in again]
        tried = await service.publish(publisher.identity, some, connection=publisher.connection)
        for at, result in zip(again, tried, strict=True):
            results[at] = result


async def within_rate(publisher: Publisher, service: Service) -> None:
    """Wait until the rate allows one more message that does not go through the hub."""
    while not publisher.closing:
        granted, wait = service.budget(publisher.connection, 1)
        if granted:
            return
        await publisher.nap(wait / 1000)


def _wait(result: Result, patient: bool) -> float | None:
    """Seconds until a publish is repeated; None if its result is final."""
    if isinstance(result, ServiceError) and (
        result.code == "rate_limited" or (patient and result.code == "unavailable")
    ):
        return (result.retry_after_ms or 100) / 1000
    return None
