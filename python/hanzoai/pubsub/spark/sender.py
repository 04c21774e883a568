"""Sends batches over HTTP, with retries: one client per server and process.

Synchronous on purpose: a task reads its rows from a blocking iterator, and threads that each wait
for one answer cost a fraction of an event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pydantic_core import SchemaValidator, core_schema, from_json

from hanzoai.pubsub.errors import (
    ClosedError,
    NotFound,
    ProtocolError,
    PubSubError,
    from_code,
)
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.problems import body_without_token, read_error
from hanzoai.pubsub.spark.connection import (
    PATIENCE,
    WITHOUT_ROUTE,
    Attempts,
    Connection,
    PerProcess,
    backoff,
)
from hanzoai.pubsub.spark.credentials import Credentials
from hanzoai.pubsub.spark.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.messages import Messages

logger = logging.getLogger("hanzoai.pubsub.spark")

ASSUMED_RATE: Final = 100.0
"""Rows per second if the server limits without stating the rate (HIP-56 Security 4)."""

_PATH: Final = "/v1/messages:batch"
_SOME_ITEM: Final = frozenset({400, 413, 422})
"""Codes of a body that is rejected as a whole, even if only one item is invalid."""
_TRANSIENT: Final = frozenset({"rate_limited", "unavailable", "internal", "going_away"})


@dataclass(slots=True)
class Sent:
    """The result of a batch.

    Attributes:
        accepted: Messages published, duplicates included.
        duplicates: Accepted messages that were published before.
        refused: Permanently rejected messages, by index in the batch.
        retries: Requests that were sent again, completely or partly.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: list[tuple[int, PubSubError]] = field(default_factory=list[tuple[int, PubSubError]])
    retries: int = 0


class Sender:
    """Sends batches to one server, from several threads at once.

    Args:
        config: Address, token source and retries.
        transport: Carries the requests instead of the network.
        clock: Monotonic seconds.
        sleep: Waits the given seconds, or until the event is set.
    """

    def __init__(
        self,
        config: PubSubConfig,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._config = config
        self._credentials = Credentials(config)
        self._clock = clock
        self._sleep = sleep
        self._pace = Pace()
        self._lock = threading.Lock()
        self._connection = Connection(config, transport)
        self._pool = ThreadPoolExecutor(config.max_in_flight, thread_name_prefix="hanzo-pubsub")

    def submit(self, messages: Messages, stop: threading.Event) -> Future[Sent]:
        """Call `send` in a thread."""
        return self._pool.submit(self.send, messages, stop)

    def forget_token(self) -> None:
        """Read the token again before the next request."""
        self._credentials.forget()

    def close(self) -> None:
        """Close the connections and end the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def send(self, messages: Messages, stop: threading.Event) -> Sent:
        """Publish a batch; returns when each message is published or permanently rejected.

        Args:
            messages: At most as many as the server accepts in one request.
            stop: Set it to cancel the request.

        Raises:
            PubSubError: The server was unreachable, or rejected the token, for all retries.
        """
        sent = Sent()
        todo: deque[list[int]] = deque([list(range(len(messages)))])
        attempts = Attempts(self._config, self._credentials)
        while todo:
            places = todo.popleft()
            with self._lock:
                share = self._pace.most(len(places))
                taken = self._clock()
                wait = self._pace.take(share, taken)
            if share < len(places):
                todo.appendleft(places[share:])
                places = places[:share]
            self._wait(stop, wait)
            token = attempts.token()
            try:
                status, headers, body = self._post([messages.texts[n] for n in places], token)
            except httpx.HTTPError as error:
                delay = attempts.unreachable(error)
            else:
                if status == 200:
                    if b'"error"' in body:
                        body = body_without_token(body, token)
                    again, wait = self._process_results(messages, places, body, sent, taken)
                    attempts.accepted()
                    failures = 0 if len(again) < len(places) else attempts.failures + 1
                    attempts.failures = failures
                    if failures > PATIENCE * (self._config.max_retries + 1):
                        _give_up(body)
                    if again:
                        todo.appendleft(again)
                        sent.retries += 1
                        self._wait(
                            stop, max(wait, backoff(self._config, failures) if failures else 0.0)
                        )
                    continue
                if status in _SOME_ITEM and len(places) > 1:
                    half = len(places) // 2
                    todo.extendleft((places[half:], places[:half]))
                    sent.retries += 1
                    continue
                body = body_without_token(body, token)
                error_ = read_error(status, headers, body, messages.topics[places[0]])
                if status in _SOME_ITEM:
                    sent.refused.append((places[0], error_))
                    continue
                left = attempts.answered(status, error_, token)
                if left is None:
                    raise _final(status, error_)
                delay = left
                if status == 429:
                    self._limited(taken)
            sent.retries += 1
            todo.appendleft(places)
            self._wait(stop, delay)
        return sent

    def _post(self, items: list[str], token: str) -> tuple[int, httpx.Headers, bytes]:
        content = ('{"messages":[' + ",".join(items) + "]}").encode()
        response = self._connection.ask("POST", _PATH, token, content=content)
        return response.status_code, response.headers, response.content

    def _process_results(
        self,
        messages: Messages,
        places: list[int],
        body: bytes,
        sent: Sent,
        taken: float,
    ) -> tuple[list[int], float]:
        """Process the results of one request; returns the messages to retry, and the wait."""
        again: list[int] = []
        wait = 0.0
        limited = False
        if _all_new(body, len(places)):
            sent.accepted += len(places)
            with self._lock:
                self._pace.accepted()
            return again, wait
        for place, result in zip(places, _results(body, len(places)), strict=True):
            if not result:
                sent.accepted += 1
                continue
            error = result.get("error")
            if error is None:
                sent.accepted += 1
                if result.get("duplicate") is True:
                    sent.duplicates += 1
                continue
            found = _item_error(error, messages.topics[place])
            if found.code in _TRANSIENT:
                limited = limited or found.code == "rate_limited"
                wait = max(wait, found.retry_after or 0.0)
                again.append(place)
            else:
                sent.refused.append((place, found))
        if limited:
            self._limited(taken)
        if not again:
            with self._lock:
                self._pace.accepted()
        return again, wait

    def _limited(self, taken: float) -> None:
        rate = ASSUMED_RATE if self._pace.rate else self._allowed_rate()
        with self._lock:
            if self._pace.rate is None:
                logger.warning(
                    "the server limits this token: the task sends at most %g rows per second."
                    " If the token has no claim `bulk`, add it for a higher limit",
                    rate,
                )
            self._pace.limited(rate, self._clock(), taken)

    def _allowed_rate(self) -> float:
        try:
            response = self._connection.ask("GET", "/v1/session", self._credentials.token())
            limits = from_json(response.content)["limits"]
            return float(limits.get("bulk_rate") or limits["publish_rate"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError, PubSubError):
            return ASSUMED_RATE

    def _wait(self, stop: threading.Event, seconds: float) -> None:
        if seconds > 0:
            self._sleep(stop, seconds)
        if stop.is_set():
            raise ClosedError("The task has ended.")


def _optional() -> core_schema.TypedDictField:
    return core_schema.typed_dict_field(core_schema.any_schema(), required=False)


_RESULT: Final = core_schema.typed_dict_schema({"error": _optional(), "duplicate": _optional()})
_ANSWER: Final = SchemaValidator(
    core_schema.typed_dict_schema(
        {"results": core_schema.typed_dict_field(core_schema.list_schema(_RESULT))}
    )
)
"""Reads selected fields of an answer without converting the rest to Python values."""


def _all_new(body: bytes, count: int) -> bool:
    """Whether an answer reports every message as accepted for the first time.

    Counts objects instead of parsing: one per message and one around them, without `true` or an
    error. May return False for such an answer, never True for any other.
    """
    return b"true" not in body and b"error" not in body and body.count(b"{") == count + 1


def _results(body: bytes, count: int) -> list[dict[str, Any]]:
    try:
        results: list[dict[str, Any]] | None = _ANSWER.validate_json(body)["results"]
    except ValueError:
        results = None
    if results is None or len(results) != count:
        raise ProtocolError(
            f"The server did not answer a batch of {count} with {count} results.",
            remedy="Check that `url` is the URL of a PubSub server.",
        )
    return results


def _item_error(error: Any, topic: str) -> PubSubError:
    fields: dict[str, Any] = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    milliseconds = fields.get("retry_after_ms")
    return from_code(
        str(fields.get("code") or "internal"),
        fields.get("message"),
        remedy=fields.get("remedy"),
        topic=topic,
        field=fields.get("field"),
        retry_after=milliseconds / 1000 if isinstance(milliseconds, int | float) else None,
    )


def _final(status: int, error: PubSubError) -> PubSubError:
    if status in WITHOUT_ROUTE:
        return NotFound(
            "The server does not support batches.",
            remedy="Check that `url` is the URL of a PubSub server with /v1/messages:batch.",
        )
    return error


def _give_up(body: bytes) -> NoReturn:
    for result in from_json(body)["results"]:
        if result.get("error") is not None:
            raise _item_error(result["error"], "")
    raise ProtocolError("The server rejected a batch without a reason.")


_senders: PerProcess[Sender] = PerProcess()


def sender_of(config: PubSubConfig) -> Sender:
    """Return the sender of this process for a server."""
    return _senders.get((*config.server, config.max_in_flight), lambda: Sender(config))
