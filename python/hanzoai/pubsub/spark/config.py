"""Options for publishing from tasks: plain data without secrets that Spark sends to executors."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.settings.checks import (
    check_choice,
    check_flag,
    check_instance,
    check_number,
    check_seconds,
    check_whole,
)
from hanzoai.pubsub.settings.known_arguments import known_arguments
from hanzoai.pubsub.settings.options import REST_URL_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
from hanzoai.pubsub.settings.urls import Endpoints, endpoints, refuse_plaintext
from hanzoai.pubsub.spark.ids import ID_STRATEGIES, IdStrategy
from hanzoai.pubsub.topics import validate_topic

DEADLETTER: Final = "deadletter"
TIMEOUT_BOUNDS: Final = (0.001, 86_400.0)
"""Least and most seconds of `request_timeout`."""
BACKOFF_BOUNDS: Final = (0.001, 5.0)
"""Least and most seconds of `retry_backoff`."""

_PROVIDER: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_TTL_MAX: Final = 2**31 - 1


def _job() -> str:
    return uuid.uuid4().hex


@known_arguments
@dataclass(frozen=True, slots=True)
class PubSubConfig:
    """How tasks reach the server, and how they publish.

    You create it on the driver, and Spark sends it to executors. It contains where to find a token,
    not the token itself. Executors read the token, and read it again when the server rejects it.

    Args:
        url: `https://…` or `wss://…`; default `HANZO_PUBSUB_REST_URL`, or else `HANZO_PUBSUB_URL`,
            of the driver.
        token_file: Path of a file with the token, on every executor.
        token_env: Environment variable of the executors with the token; default:
            `HANZO_PUBSUB_TOKEN`, unless another source is given.
        credential_provider: `module:callable`, importable on executors, that returns a token.
        allow_insecure: Send the token over plaintext `http://` to another machine.
        batch_size: Maximum rows per request, 1 to 1,000.
        max_batch_bytes: Maximum bytes per request, 1 KiB to 4 MiB. A larger row is sent alone.
        max_message_bytes: Maximum bytes of JSON in `data`; the service accepts 262,144.
        max_in_flight: Requests of a task that wait for an answer, 1 to 64. With 1, the rows of a
            partition keep their order.
        request_timeout: Seconds to wait for each answer.
        max_retries: Consecutive failed attempts after which the task fails.
        retry_backoff: Seconds before the second attempt; doubles up to 5 s.
        topic: Topic of rows without a `topic`.
        type: Message type of rows without a `type`.
        ttl: Seconds in history for rows without a `ttl`; default: the retention of the server.
        ids: How rows get their message ids. `column`: from the column `id`, which is required.
            `content`: from a hash of the row. `auto`: from the column `id`, or the content of rows
            without one. `position`: from the number of the row in its partition. `random`: a new
            id. With `position` and `random`, rows can be lost or repeated when Spark repeats a
            task.
        id_namespace: Part of the ids that are not from a column. Two jobs with the same namespace
            publish equal rows once. Default: a namespace of its own for each stage of a job, or for
            each micro-batch.
        max_rows_per_second: Maximum rows per second of one task; default: unlimited.
        on_error: What happens to rows that cannot be published: `fail` fails the task,
            `deadletter:<topic>` publishes them on another topic.
        on_oversize: What happens to rows over `max_message_bytes`: `fail` treats them as `on_error`
            specifies, `drop` leaves them out.
        log_stats: Log what each task published, at level INFO.

    Raises:
        InvalidOption: An argument is wrong; `field` names it.
    """

    url: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    credential_provider: str | None = None
    allow_insecure: bool = False
    batch_size: int = 500
    max_batch_bytes: int = 1 << 20
    max_message_bytes: int = 262_144
    max_in_flight: int = 4
    request_timeout: float = 10.0
    max_retries: int = 8
    retry_backoff: float = 0.05
    topic: str | None = None
    type: str = "message"
    ttl: int | None = None
    ids: IdStrategy = "auto"
    id_namespace: str | None = None
    max_rows_per_second: float | None = None
    on_error: str = "fail"
    on_oversize: Literal["fail", "drop"] = "fail"
    log_stats: bool = False
    job: str = field(default_factory=_job, repr=False, kw_only=True)
    """Id created with the config, the same in every task."""

    def __post_init__(self) -> None:
        url = self.url or os.environ.get(REST_URL_VARIABLE) or os.environ.get(URL_VARIABLE)
        if not url:
            raise InvalidOption(
                "`url` is missing.",
                remedy=f"Give the URL of the server, or set {URL_VARIABLE} on the driver.",
                field="url",
            )
        check_flag("allow_insecure", self.allow_insecure)
        found = _endpoints(url)
        if not self.allow_insecure:
            # Tasks send requests over HTTP only: the error names this scheme.
            refuse_plaintext(replace(found, socket=found.http))
        object.__setattr__(self, "url", found.http)
        self._check_credentials()
        check_whole("batch_size", self.batch_size, 1, 1_000, "rows")
        check_whole("max_batch_bytes", self.max_batch_bytes, 1 << 10, 4 << 20, "bytes")
        check_whole("max_message_bytes", self.max_message_bytes, 1, 4 << 20, "bytes")
        check_whole("max_in_flight", self.max_in_flight, 1, 64, "requests")
        check_seconds("request_timeout", self.request_timeout, *TIMEOUT_BOUNDS)
        check_whole("max_retries", self.max_retries, 0, 1_000, "attempts")
        check_seconds("retry_backoff", self.retry_backoff, *BACKOFF_BOUNDS)
        if self.topic is not None:
            validate_topic(self.topic)
        _check_text("type", self.type, 128)
        if self.ttl is not None:
            check_whole("ttl", self.ttl, 0, _TTL_MAX, "seconds")
        check_choice("ids", self.ids, ID_STRATEGIES)
        if self.id_namespace is not None:
            _check_text("id_namespace", self.id_namespace, 1_000)
        if self.max_rows_per_second is not None:
            check_number("max_rows_per_second", self.max_rows_per_second, 0.01, 1e9, "rows")
        self._check_on_error()
        check_choice("on_oversize", self.on_oversize, ("fail", "drop"))
        check_flag("log_stats", self.log_stats)

    @property
    def base_url(self) -> str:
        """Base URL of the HTTP API, without a trailing slash."""
        assert self.url is not None
        return self.url

    @property
    def dead_letter_topic(self) -> str | None:
        """Topic for rows that cannot be published; None if these fail the task."""
        return self.on_error.partition(":")[2] or None

    @property
    def server(self) -> tuple[object, ...]:
        """Values that must be equal for two configs to share a client."""
        return (
            self.url,
            self.token_file,
            self.token_env,
            self.credential_provider,
            self.request_timeout,
            self.max_retries,
            self.retry_backoff,
        )

    def _check_credentials(self) -> None:
        given = [
            name
            for name in ("token_file", "token_env", "credential_provider")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InvalidOption(
                f"`{given[0]}` and `{given[1]}` cannot be used together.",
                remedy="Set only one of them.",
                field=given[1],
            )
        for name in given:
            _check_text(name, getattr(self, name), 4_096)
        if self.credential_provider is not None and not _PROVIDER.fullmatch(
            self.credential_provider
        ):
            raise InvalidOption(
                "`credential_provider` is not of the form `module:callable`.",
                remedy=_TEXT_REMEDIES["credential_provider"],
                field="credential_provider",
            )
        if not given:
            object.__setattr__(self, "token_env", TOKEN_VARIABLE)

    def _check_on_error(self) -> None:
        if self.on_error == "fail":
            return
        word, _, topic = str(self.on_error).partition(":")
        if word != DEADLETTER or not topic:
            raise InvalidOption(
                "`on_error` is neither `fail` nor `deadletter:<topic>`.",
                remedy="Name the topic, as in `deadletter:jobs.nightly.rejected`.",
                field="on_error",
            )
        validate_topic(topic)


def check_config(config: object) -> None:
    """Check a config on the driver, before Spark sends it to executors.

    Raises:
        InvalidOption: It is not a `PubSubConfig`.
    """
    remedy = "Build it with hanzoai.pubsub.spark.PubSubConfig(...)."
    check_instance("config", config, PubSubConfig, remedy)


def _endpoints(url: str) -> Endpoints:
    try:
        return endpoints(url)
    except InvalidOption as error:
        if "`token`" not in error.remedy:
            raise
        # The remedy for clients names options that do not exist here.
        raise InvalidOption(
            error.message,
            remedy="Remove it. Give `token_file`, `token_env` or `credential_provider`.",
            field=error.field,
        ) from None


_TEXT_REMEDIES: Final = {
    "token_file": "Give the path of a file that contains the token.",
    "token_env": "Give the name of the environment variable that contains the token.",
    "credential_provider": "Write it like `my_package.tokens:current`.",
    "type": "Name the kind of the messages, such as `result`.",
    "id_namespace": "Name the job, such as `nightly-2026-02-23`.",
}


def _check_text(name: str, value: object, longest: int) -> None:
    if (
        not isinstance(value, str)
        or len(value) > longest
        or not value.strip()
        or not value.isprintable()
    ):
        raise InvalidOption(
            f"`{name}` is blank, or not a text of at most {longest:,} printable characters.",
            remedy=_TEXT_REMEDIES[name],
            field=name,
        )
