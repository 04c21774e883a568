"""Reads options of `.option(…)`, camelCase texts, into a `PubSubConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic
from hanzoai.pubsub.near_names import did_you_mean
from hanzoai.pubsub.settings.checks import check_number
from hanzoai.pubsub.spark.config import BACKOFF_BOUNDS, TIMEOUT_BOUNDS, PubSubConfig
from hanzoai.pubsub.spark.wording import E, restated

Reader = Callable[[str, str], object]
"""Reads the text of an option: its name and text → its value. Raises InvalidOption."""
Table = Mapping[str, tuple[str, Reader]]
"""Options: name → field of a config, and the reader of its text."""

_BEYOND: Final = 1 << 64
"""A number that no option accepts."""


def text(name: str, value: str) -> object:
    """Read a text without changes."""
    return value


def whole(name: str, value: str) -> object:
    """Read a whole number."""
    try:
        return int(value)
    except ValueError:
        if value.strip().lstrip("+-").isdecimal():
            # Python converts at most 4,300 digits: more are beyond every range.
            return _BEYOND
        raise invalid(name, "is not a whole number", "Write it in digits.") from None


def number(name: str, value: str) -> object:
    """Read a number."""
    try:
        return float(value)
    except ValueError:
        raise invalid(name, "is not a number", "Write it in digits.") from None


def milliseconds(bounds: tuple[float, float]) -> Reader:
    """Return a reader of milliseconds, whose value is in seconds.

    Args:
        bounds: Least and most seconds.
    """
    low, high = (1000 * bound for bound in bounds)

    def read(name: str, value: str) -> object:
        return check_number(name, number(name, value), low, high, "milliseconds") / 1000

    return read


def flag(name: str, value: str) -> object:
    """Read `true` or `false`, in any case."""
    known = {"true": True, "false": False}.get(value.strip().lower())
    if known is None:
        raise invalid(name, "is neither `true` nor `false`", "Write one of these.")
    return known


SERVER_OPTIONS: Final[Table] = {
    "url": ("url", text),
    "tokenFile": ("token_file", text),
    "tokenEnv": ("token_env", text),
    "credentialProvider": ("credential_provider", text),
    "allowInsecure": ("allow_insecure", flag),
    "requestTimeoutMs": ("request_timeout", milliseconds(TIMEOUT_BOUNDS)),
    "maxRetries": ("max_retries", whole),
    "retryBackoffMs": ("retry_backoff", milliseconds(BACKOFF_BOUNDS)),
}
"""Connection options of both source and sink, fields of `PubSubConfig`."""

SINK_OPTIONS: Final[Table] = {
    **SERVER_OPTIONS,
    "batchSize": ("batch_size", whole),
    "maxBatchBytes": ("max_batch_bytes", whole),
    "maxMessageBytes": ("max_message_bytes", whole),
    "maxInFlight": ("max_in_flight", whole),
    "topic": ("topic", text),
    "type": ("type", text),
    "ttl": ("ttl", whole),
    "idStrategy": ("ids", text),
    "idNamespace": ("id_namespace", text),
    "maxRowsPerSecond": ("max_rows_per_second", number),
    "onError": ("on_error", text),
    "onOversize": ("on_oversize", text),
    "statsLog": ("log_stats", flag),
}
"""The sink's options, fields of `PubSubConfig`."""

_SPARKS: Final = {"checkpointlocation": "checkpointLocation", "queryname": "queryName"}
"""Options that Spark itself reads, and passes on: lower case → name."""
_OF_TABLES: Final = frozenset({"owner", "provider"})
"""What Spark adds to the options of a table in its catalog, in any order."""
_NO_TABLE: Final = (
    "Read with spark.read.format or CREATE TEMPORARY VIEW, and publish with write.format and"
    " save()."
)
_TOKENS: Final = frozenset({"token", "accesstoken", "apikey", "bearer", "password", "secret"})


def sink_config(options: Mapping[str, str]) -> PubSubConfig:
    """Return the config of the options of a sink.

    Args:
        options: Options from Spark; names in any case.

    Raises:
        InvalidOption: An option is unknown or wrong; `field` is its name. The message omits values.
        InvalidTopic: A topic is not valid.
    """
    given = read_options(options, SINK_OPTIONS, "Call save() without a path; name `topic`.")
    try:
        return PubSubConfig(**given)
    except InvalidOption as error:
        if not options:
            raise restated(
                error,
                error.message,
                remedy=f"{error.remedy} Spark passes no options of a table. {_NO_TABLE}",
            ) from None
        raise renamed(error, SINK_OPTIONS) from None
    except InvalidTopic as error:
        option = "topic" if error.topic == given.get("topic") else "onError"
        raise InvalidTopic(
            f"Option `{option}`: {error.message}",
            remedy=error.remedy,
            topic=error.topic,
            field=option,
        ) from None


def read_options(options: Mapping[str, str], table: Table, path: str) -> dict[str, Any]:
    """Return the fields of options.

    Args:
        options: Options from Spark; names in any case.
        table: The known options.
        path: Error text if a path is given.

    Raises:
        InvalidOption: An option is unknown or cannot be read; `field` is its name.
    """
    names = {name.lower(): name for name in table}
    given: dict[str, Any] = {}
    for key, value in options.items():
        low = key.lower()
        name = names.get(low)
        if name is not None:
            field, read = table[name]
            given[field] = read(name, value)
        elif low not in _SPARKS:
            raise _unknown(key, low, names, path)
    return given


def renamed(error: E, table: Table) -> E:
    """Return the error with the option's name in Spark."""
    spoken = {field: name for name, (field, _) in table.items()}
    sentence, remedy = error.message, error.remedy
    for field, name in spoken.items():
        sentence = sentence.replace(f"`{field}`", f"`{name}`")
        remedy = remedy.replace(f"`{field}`", f"`{name}`")
        remedy = remedy.replace(f"`{field}=True`", f"`{name}=true`")
    return restated(error, sentence, remedy=remedy, field=spoken.get(error.field or ""))


def _unknown(key: str, low: str, names: Mapping[str, str], path: str) -> InvalidOption:
    if low in _TOKENS:
        return invalid(
            key,
            "would send a secret to every executor",
            "Give tokenFile, tokenEnv or credentialProvider.",
        )
    if low == "path":
        return invalid("path", "is not supported", path)
    if low in _OF_TABLES or low.startswith("option."):
        return invalid(key[:80], "is that of a table, and a topic cannot be a table", _NO_TABLE)
    hint = did_you_mean(key, [*names.values(), *_SPARKS.values()])
    return invalid(key[:80], "is unknown", f"{hint}Valid options: {', '.join(names.values())}.")


def invalid(name: str, problem: str, remedy: str) -> InvalidOption:
    """Return the error of an option."""
    return InvalidOption(f"Option `{name}` {problem}.", remedy=remedy, field=name)
