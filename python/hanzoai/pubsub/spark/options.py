"""Options of `.option(…)`: camelCase texts, read into a `PubSubConfig`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic
from hanzoai.pubsub.spark.config import PubSubConfig

_Reader = Callable[[str, str], object]


def _text(name: str, value: str) -> object:
    return value


def _whole(name: str, value: str) -> object:
    try:
        return int(value)
    except ValueError:
        raise _invalid(name, "is not a whole number", "Write it in digits.") from None


def _number(name: str, value: str) -> object:
    try:
        return float(value)
    except ValueError:
        raise _invalid(name, "is not a number", "Write it in digits.") from None


def _milliseconds(name: str, value: str) -> object:
    return float(str(_number(name, value))) / 1000


def _flag(name: str, value: str) -> object:
    known = {"true": True, "false": False}.get(value.strip().lower())
    if known is None:
        raise _invalid(name, "is neither `true` nor `false`", "Write one of these.")
    return known


SINK_OPTIONS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "url": ("url", _text),
    "tokenFile": ("token_file", _text),
    "tokenEnv": ("token_env", _text),
    "credentialProvider": ("credential_provider", _text),
    "allowInsecure": ("allow_insecure", _flag),
    "batchSize": ("batch_size", _whole),
    "maxBatchBytes": ("max_batch_bytes", _whole),
    "maxMessageBytes": ("max_message_bytes", _whole),
    "maxInFlight": ("max_in_flight", _whole),
    "requestTimeoutMs": ("request_timeout", _milliseconds),
    "maxRetries": ("max_retries", _whole),
    "retryBackoffMs": ("retry_backoff", _milliseconds),
    "topic": ("topic", _text),
    "type": ("type", _text),
    "ttl": ("ttl", _whole),
    "idStrategy": ("ids", _text),
    "idNamespace": ("id_namespace", _text),
    "maxRowsPerSecond": ("max_rows_per_second", _number),
    "onError": ("on_error", _text),
    "onOversize": ("on_oversize", _text),
    "statsLog": ("log_stats", _flag),
}
"""The sink's options: name → field of `PubSubConfig`, and how its text is read."""

_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
_TOKENS: Final = frozenset({"token", "accesstoken", "apikey", "bearer", "password", "secret"})


def sink_config(options: Mapping[str, str]) -> PubSubConfig:
    """The config that the options of a sink describe.

    Args:
        options: As Spark gives them; names in whatever case.

    Raises:
        InvalidOption: One is unknown or wrong; `field` is its name, and no value is shown.
        InvalidTopic: A topic among them is not valid.
    """
    names = {name.lower(): name for name in SINK_OPTIONS}
    given: dict[str, Any] = {}
    for key, value in options.items():
        low = key.lower()
        name = names.get(low)
        if name is not None:
            field, read = SINK_OPTIONS[name]
            given[field] = read(name, value)
        elif low not in _SPARKS:
            raise _unknown(key, low, names)
    try:
        return PubSubConfig(**given)
    except InvalidOption as error:
        raise _renamed(error) from None
    except InvalidTopic as error:
        option = "topic" if error.topic == given.get("topic") else "onError"
        raise InvalidTopic(
            f"Option `{option}`: {error.message}",
            remedy=error.remedy,
            topic=error.topic,
            field=option,
        ) from None


def _renamed(error: InvalidOption) -> InvalidOption:
    """The same error with the name that the option has in Spark."""
    spoken = {field: name for name, (field, _) in SINK_OPTIONS.items()}
    text = error.message
    for field, name in spoken.items():
        text = text.replace(f"`{field}`", f"`{name}`")
    return type(error)(text, remedy=error.remedy, field=spoken.get(error.field or "", error.field))


def _unknown(key: str, low: str, names: Mapping[str, str]) -> InvalidOption:
    if low in _TOKENS:
        return _invalid(
            key,
            "would carry a secret to every executor",
            "Give tokenFile, tokenEnv or credentialProvider.",
        )
    if low == "path":
        return _invalid("path", "is not taken", "Call save() without a path; name `topic`.")
    near = difflib.get_close_matches(low, names, n=1, cutoff=0.6)
    hint = f"Did you mean `{names[near[0]]}`? " if near else ""
    return _invalid(key[:80], "is unknown", f"{hint}Known are {', '.join(SINK_OPTIONS)}.")


def _invalid(name: str, problem: str, remedy: str) -> InvalidOption:
    return InvalidOption(f"Option `{name}` {problem}.", remedy=remedy, field=name)
