"""Publishes messages of the program and returns their results.

Publishes go over the connection, where they are pipelined and queued, or in an HTTP request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from hanzoai.pubsub.errors import InvalidPayload, OperationTimeout, PubSubError
from hanzoai.pubsub.http.calls import batches, error_info
from hanzoai.pubsub.runtime.failures import rejected
from hanzoai.pubsub.runtime.publishing import PRESENCE_UPDATE, Prepared, prepare, prepare_items
from hanzoai.pubsub.session.ports import Acked, Rejected, Unknown
from hanzoai.pubsub.session.requests import Publish
from hanzoai.pubsub.settings.checks import check_choice, check_text
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.values import Published, Via
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hanzoai.pubsub.generated.wire import PublishResult
    from hanzoai.pubsub.runtime.driver import Driver
    from hanzoai.pubsub.runtime.http_operations import HttpApi
    from hanzoai.pubsub.session.ports import Outcome
    from hanzoai.pubsub.values import Duration, Outgoing, Ttl

_BATCH_BYTES: Final = 1 << 20
"""Maximum bytes of a frame of a batch."""

_LATE: Final = "No answer arrived in time. The message may have been published."


class Publisher:
    """Publishes messages and the presence of one client."""

    def __init__(self, driver: Driver, http: HttpApi) -> None:
        self._driver = driver
        self._http = http

    def prepare(
        self, topic: str | None, message: Outgoing, ttl: Ttl | None = None, id: str | None = None
    ) -> Prepared:
        """Check one message."""
        return prepare(topic, message, self._driver.max_payload, ttl=ttl, id=id)

    def prepare_items(self, items: Iterable[object]) -> list[Prepared]:
        """Check the items of ``publish_many``."""
        return prepare_items(items, self._driver.max_payload)

    async def publish(
        self,
        topic: str,
        message: Outgoing,
        ttl: Ttl | None,
        id: str | None,
        key: str | None,
        background: bool,
        timeout: Duration | None,
        via: Via,
    ) -> Published:
        """Publish one message, or update presence if the message does that."""
        if via != "auto":
            check_choice("via", via, get_args(Via))
        if key is not None:
            check_text("key", key, "a word that messages which replace each other share")
        driver = self._driver
        options = driver.options
        one = prepare(topic, message, driver.max_payload, ttl=ttl, id=id)
        if one.publication.type == PRESENCE_UPDATE and via != "rest":
            await self.update_presence(topic, one.publication.data, timeout=timeout)
            return Published(one.id)
        seconds = options.operation_timeout if timeout is None else driver.timeout_of(timeout)
        deadline = driver.clock.now() + seconds
        policy = options.send_queue.policy
        key = key if policy == "latest" else None
        messages = (one.publication,)
        publish = Publish(driver.number(), messages, one.size, policy, key, False, background)
        outcome = await self._submit(publish, deadline, via)
        if isinstance(outcome, Acked):
            result = _published(outcome.results[0], one)
        else:
            result = self._failure(outcome, one, seconds, deadline)
        if isinstance(result, PubSubError):
            raise result
        return result

    async def publish_many(
        self, items: Sequence[Prepared], *, timeout: Duration | None, via: Via
    ) -> list[Published | PubSubError]:
        """Publish several; see ``PubSubClient.publish_many``."""
        check_choice("via", via, get_args(Via))
        driver = self._driver
        seconds = driver.timeout_of(timeout)
        deadline = driver.clock.now() + seconds
        driver.check_open()
        results: list[Published | PubSubError] = []
        peer = driver.peer
        most: float = driver.limits.max_batch or 1_000
        if peer is not None:
            # Room is granted for a whole frame.
            most = min(most, peer.burst)
        sizes = [item.size for item in items]
        for chunk in batches(items, sizes, most, _BATCH_BYTES):
            messages = tuple(item.publication for item in chunk)
            size, policy = sum(item.size for item in chunk), driver.options.send_queue.policy
            publish = Publish(driver.number(), messages, size, policy, batch=True)
            try:
                outcome = await self._submit(publish, deadline, via)
                if isinstance(outcome, Acked):
                    pairs = zip(outcome.results, chunk, strict=True)
                    results += [_published(result, one) for result, one in pairs]
                else:
                    results += [self._failure(outcome, one, seconds, deadline) for one in chunk]
            except PubSubError as error:
                results += [_of_item(error, item) for item in chunk]
        return results

    async def _submit(self, publish: Publish, deadline: float, via: Via) -> Outcome:
        """Publish over HTTP, or over the connection: also if there is no HTTP API."""
        driver, peer = self._driver, self._driver.peer
        if via == "rest" or (via == "auto" and peer is not None and not peer.acks):
            driver.check_open()
            acked = await self._http.publish(publish, deadline, certain=via == "rest")
            if acked is not None:
                return acked
        if driver.is_finished:
            driver.check_open()
        if driver.failures.state == "initialized":
            driver.connect()
        if not driver.options.echo:
            driver.deliveries.remember_own(publish.messages, len(driver.session.publishes))
        try:
            return await driver.settled(publish.ref, deadline, driver.session.publish, publish)
        except asyncio.CancelledError:
            driver.give_up(publish.ref)
            raise

    def _failure(
        self, outcome: Rejected | Unknown, item: Prepared, seconds: float, deadline: float
    ) -> PubSubError:
        driver, topic, id = self._driver, item.publication.topic, item.id
        if isinstance(outcome, Unknown):
            if driver.clock.now() >= deadline:
                return OperationTimeout(_LATE, topic=topic, id=id, outcome_unknown=True)
            return OperationTimeout(code="outcome_unknown", topic=topic, id=id)
        if outcome.code == "timeout":
            failures, rate = driver.failures, driver.limits.publish_rate
            why = f"The message could not be sent within {seconds:g} s. {failures.describe_state()}"
            if failures.state == "connected" and rate:
                why += (
                    f" The client limits publishes to {rate:g} per second, the limit of the server."
                )
            return OperationTimeout(
                why,
                topic=topic,
                remedy=failures.remedy(None),
                cause=failures.cause,
                outcome_unknown=False,
                id=id,
            )
        return rejected(outcome, topic, id)

    # ------------------------------------------------------------ presence

    async def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None
    ) -> None:
        """Change how this client appears; see ``PubSubClient.update_presence``."""
        driver = self._driver
        if topic is not None:
            validate_topic(topic)
        # Callers without a type checker may pass any value.
        if not isinstance(cast("object", data), Mapping):
            raise InvalidPayload(
                "The presence update is not an object.",
                remedy="Pass `status` and other keys with their values.",
                field="data",
                topic=topic,
            )
        check_data(data, driver.max_payload, topic=topic)
        driver.check_open()
        seconds = driver.timeout_of(timeout)
        driver.connect()
        ref, deadline = driver.number(), driver.clock.now() + seconds
        update = driver.session.update_presence
        outcome = await driver.settled(ref, deadline, update, topic, dict(data), ref)
        if isinstance(outcome, Unknown):
            if driver.failures.state != "connected":
                raise driver.failures.not_connected(seconds, code="not_connected", topic=topic)
            raise OperationTimeout(
                f"The server did not answer the update of presence within {seconds:g} s. "
                f"{driver.failures.describe_state()}",
                topic=topic,
                remedy=(
                    "No action is needed: the client sends the update again until it is answered."
                ),
                outcome_unknown=True,
            )
        if isinstance(outcome, Rejected):
            raise rejected(outcome, topic)

    def set_presence(self, topic: str, data: Mapping[str, Any]) -> None:
        """Set the presence of this client, now or with the next connection; report a rejection."""
        driver = self._driver
        ref, update = driver.number(), driver.session.update_presence

        def report(settled: asyncio.Future[Outcome]) -> None:
            outcome = settled.result()
            if isinstance(outcome, Rejected) and outcome.code != "closed":
                driver.listeners.report(rejected(outcome, topic), topic)

        settled = driver.settled(ref, math.inf, update, topic, dict(data), ref)
        settled.add_done_callback(report)


def _published(result: PublishResult, item: Prepared) -> Published | PubSubError:
    """The result of one publish for the program."""
    error = result.error
    if error is None:
        return Published(result.id or item.id, result.timestamp, result.seq, bool(result.duplicate))
    return rejected(error, item.publication.topic, item.id)


def _of_item(error: PubSubError, item: Prepared) -> PubSubError:
    """The error of a whole batch, as the error of one of its messages."""
    failed = rejected(error_info(error), item.publication.topic, item.id)
    failed.__cause__ = error.__cause__
    return failed
