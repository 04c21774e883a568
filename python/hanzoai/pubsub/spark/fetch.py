"""Fetches positions and pages over HTTP, with retries."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from pydantic_core import from_json, to_json

from hanzoai.pubsub.errors import (
    ClosedError,
    LimitExceeded,
    NotFound,
    ProtocolError,
    PubSubError,
    from_code,
)
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.problems import body_without_token, read_error
from hanzoai.pubsub.spark.connection import WITHOUT_ROUTE, Attempts, Connection, PerProcess
from hanzoai.pubsub.spark.credentials import Credentials
from hanzoai.pubsub.spark.planning import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from hanzoai.pubsub.spark.config import PubSubConfig

IN_FLIGHT: Final = 4
"""Concurrent page requests of a task."""


@dataclass(frozen=True, slots=True)
class Page:
    """Retained messages after a position, oldest first.

    Attributes:
        messages: Envelopes.
        restarted: Whether the log started again after that position.
        more: Whether newer messages remain.
    """

    messages: list[dict[str, Any]]
    restarted: bool = False
    more: bool = False


class Fetcher:
    """Sends requests to one server, from several threads at once.

    Args:
        config: Address, token source and retries.
        transport: Carries the requests instead of the network.
        sleep: Waits the given seconds, or until the event is set.
    """

    def __init__(
        self,
        config: PubSubConfig,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._config = config
        self._credentials = Credentials(config)
        self._connection = Connection(config, transport)
        self._sleep = sleep
        self._pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="hanzo-pubsub-read")

    def close(self) -> None:
        """Close the connections and end the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def positions(
        self,
        topics: Sequence[str],
        *,
        at: int | None = None,
        after: Mapping[str, int] | None = None,
        wait: float = 0.0,
    ) -> dict[str, Standing]:
        """Return the positions of topics.

        Args:
            topics: Topics and patterns.
            at: Unix ms, to request the position at that time.
            after: Newest known positions; the server answers when one of them changes.
            wait: Maximum wait in seconds.

        Raises:
            PubSubError: The server was unreachable, or rejected the token, for all retries; the
                token may not read a topic; more topics match than the server lists.
        """
        body: dict[str, object] = {"topics": list(topics)}
        if at is not None:
            body["at"] = at
        if after is not None:
            body["after"] = dict(after)
            body["wait_ms"] = round(wait * 1000)
        answer = self._call("POST", "/v1/positions", content=to_json(body), wait=wait)
        found = _standings(answer)
        if answer.get("has_more") is True:
            raise LimitExceeded(
                f"More than {len(found):,} topics match.",
                remedy="Read them with several queries and narrower patterns.",
                field="topicsPattern",
            )
        return found

    def page(self, topic: str, after: int, limit: int, stop: threading.Event | None = None) -> Page:
        """Return the retained messages after a position; fewer if they are large.

        Args:
            topic: The topic.
            after: The position.
            limit: Maximum number of messages.
            stop: Set it to cancel the request.
        """
        path = f"/v1/topics/{quote(topic, safe='')}/history"
        answer = self._call(
            "GET", path, params={"after": str(after), "limit": str(limit)}, topic=topic, stop=stop
        )
        messages: object = answer.get("messages")
        if not isinstance(messages, list):
            raise _strange("a page")
        return Page(
            cast("list[dict[str, Any]]", messages),
            restarted=answer.get("reset") is True,
            more=answer.get("has_more") is True,
        )

    def submit(self, topic: str, after: int, limit: int, stop: threading.Event) -> Future[Page]:
        """Call `page` in a thread."""
        return self._pool.submit(self.page, topic, after, limit, stop)

    def _call(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        topic: str | None = None,
        wait: float = 0.0,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        stop = stop or threading.Event()
        attempts = Attempts(self._config, self._credentials)
        while True:
            if stop.is_set():
                raise ClosedError("The task has ended.")
            token = attempts.token()
            try:
                response = self._connection.ask(
                    method, path, token, content=content, params=params, wait=wait
                )
            except httpx.HTTPError as error:
                self._sleep(stop, attempts.unreachable(error))
                continue
            status = response.status_code
            if status == 200:
                return _object(response.content)
            body = body_without_token(response.content, token)
            found = read_error(status, response.headers, body, topic)
            delay = attempts.answered(status, found, token)
            if delay is None:
                if status in WITHOUT_ROUTE:
                    raise NotFound(
                        f"The server does not support {method} {path.partition('/topics')[0]}.",
                        remedy="Check that `url` is the URL of a PubSub server that supports "
                        "positions.",
                    )
                raise _named(found)
            if delay:
                self._sleep(stop, delay)


def _named(error: PubSubError) -> PubSubError:
    """Return the error with its topic in the message, since Spark shows only the message."""
    if error.topic is None or error.topic in error.message:
        return error
    return from_code(
        error.code,
        f"Topic {error.topic!a}: {error.message}",
        remedy=error.remedy,
        topic=error.topic,
        field=error.field,
        retry_after=error.retry_after,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found: object = from_json(body, cache_strings="keys")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _strange("JSON")
    return cast("dict[str, Any]", found)


def _standings(answer: dict[str, Any]) -> dict[str, Standing]:
    try:
        return {
            each["topic"]: Standing(int(each["first"]), int(each["last"]), each.get("at"))
            for each in answer["positions"]
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange("positions") from None


def _strange(what: str) -> ProtocolError:
    return ProtocolError(
        f"The server did not answer with {what}.",
        remedy="Check that `url` is the URL of a PubSub server.",
    )


_fetchers: PerProcess[Fetcher] = PerProcess()


def fetcher_of(config: PubSubConfig) -> Fetcher:
    """Return the fetcher of this process for a server."""
    return _fetchers.get(config.server, lambda: Fetcher(config))
