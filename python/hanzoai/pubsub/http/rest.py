"""Operations of the HTTP API that are more than one call of `calls.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import NotFound, PubSubError, Unsupported
from hanzoai.pubsub.generated.wire import PublishResult
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.performing import Performer
from hanzoai.pubsub.wire.payloads import check_publication

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hanzoai.pubsub.generated.wire import PositionList, Publication

_OVERHEAD: Final = 512
"""Bytes of a message in a request, in addition to its payload."""


class Rest(Performer):
    """Performs calls, batches, and requests that wait; same arguments as `Performer`.

    The caller has checked the sizes of publications, by the limits of the server. A payload that
    has changed since may no longer be JSON.
    """

    _without_batch = False

    @property
    def has_batch(self) -> bool:
        """Whether the peer accepts batches, as far as known."""
        return not self._without_batch and (self.features is None or "batch" in self.features)

    async def publish(
        self, publication: Publication, *, timeout: float | None = None
    ) -> PublishResult:
        """Publish one message.

        Args:
            publication: With an id, so that it can be repeated.
            timeout: Seconds or a timedelta; default: `operation_timeout`.

        Raises:
            InvalidPayload: The payload is not JSON.
            PubSubError: Any class of the tree; `OperationTimeout.outcome_unknown` shows whether the
                server may have published it.
        """
        check_publication(publication, sys.maxsize)
        return await self.perform(rest_calls.publish(publication), timeout=timeout)

    async def publish_many(
        self, publications: Sequence[Publication], *, timeout: float | None = None
    ) -> list[PublishResult]:
        """Publish several messages in order; one result each, with `error` if it was rejected.

        If the peer does not support batches, they are published one by one.

        Args:
            publications: With ids.
            timeout: Seconds for all of them; default `operation_timeout`.

        Raises:
            PubSubError: All messages went in one request, and it failed.
        """
        sizes = [check_publication(one, sys.maxsize) + _OVERHEAD for one in publications]
        seconds = self._options.operation_timeout if timeout is None else timeout
        deadline = self._clock.now() + seconds
        results: list[PublishResult] = []
        for chunk in rest_calls.batches(publications, sizes):
            left = max(deadline - self._clock.now(), 0.0)
            try:
                results += await self._publish_chunk(chunk, left)
            except PubSubError as error:
                if not results and len(chunk) == len(publications):
                    raise
                # Some chunks may have succeeded, so each message gets its own result.
                info = rest_calls.error_info(error)
                results += [PublishResult(id=one.id, error=info) for one in chunk]
                info = rest_calls.not_sent(error)
                left_out = publications[len(results) :]
                results += [PublishResult(id=one.id, error=info) for one in left_out]
                break
        return results

    async def _publish_chunk(self, chunk: list[Publication], timeout: float) -> list[PublishResult]:
        if self.has_batch:
            try:
                return await self.perform(rest_calls.publish_batch(chunk), timeout=timeout)
            except (NotFound, Unsupported):
                self._without_batch = True
        deadline = self._clock.now() + timeout
        results: list[PublishResult] = []
        for publication in chunk:
            left = max(deadline - self._clock.now(), 0.0)
            try:
                done = await self.perform(rest_calls.publish(publication), timeout=left)
            except PubSubError as error:
                done = PublishResult(id=publication.id, error=rest_calls.error_info(error))
            results.append(done)
        return results

    async def positions(
        self,
        topics: Sequence[str],
        *,
        after: Mapping[str, int] | None = None,
        at: int | None = None,
        wait_ms: int = 0,
        timeout: float | None = None,
    ) -> PositionList:
        """The positions of topics; see `calls.positions`.

        ``timeout`` is in addition to the time that the server holds the answer.
        """
        call = rest_calls.positions(topics, after=after, at=at, wait_ms=wait_ms)
        seconds = self._options.operation_timeout if timeout is None else timeout
        return await self.perform(call, timeout=seconds + wait_ms / 1000)
