"""Reads settings from flags, the environment, one YAML file and defaults, and reports problems.

A flag overrides the environment, the environment overrides the file, and the file overrides the
default.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from pubsub_server.settings import documents
from pubsub_server.settings.config import GROUPS, Settings
from pubsub_server.settings.conflicts import conflicts
from pubsub_server.settings.kinds import FORMS, METAVARS, metadata, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

PREFIX = "HANZO_PUBSUB_"
HIP_56_VARIABLES = (
    "REDIS_URL",
    "IAM_URL",
    "IAM_JWKS_URL",
    "HISTORY_MAX_MESSAGES",
    "HISTORY_MAX_AGE",
    "LOG_LEVEL",
)
"""HIP-56, Deployment: these also work without the prefix; the prefixed variable takes
precedence.
"""

_PLACEHOLDERS = {
    **dict.fromkeys(("event_stream", "hub", "signed_listen", "mesh_listen"), "ADDRESS"),
    "mesh_advertise": "HOST:PORT",
    "sp_pub": "URL",
    "signed_upstream": "URL",
}
"""Placeholders in the help of flags whose names do not say what to write."""

CLIENT_VARIABLES = frozenset({"URL", "TOKEN", "REST_URL", "SPEED", "CONFIG", "SOAK"})
"""Variables with the same prefix that are not settings."""

PROTECTIVE = frozenset(
    {
        "audit_kafka_ca",
        "audit_kafka_tls",
        "contract",
        "cors_origins",
        "jwt_audience",
        "jwt_issuer",
        "listener_client_ca",
        "mesh_key",
        "mesh_tls_ca",
        "mesh_tls_cert",
        "mesh_tls_key",
        "rules",
    }
)
"""Settings without which the server checks or encrypts less.

An empty variable or key of one is an error: it is more likely a value that was not filled in.
"""

MASK = "********"

_OBJECTS = frozenset(
    {"webhooks", "history_classes", "org_limits", "jwt_claims", "listener_identities"}
)
"""Settings that are lists or maps of objects: JSON in a flag or variable."""

_CREDENTIALS = re.compile(r"(?<=:)//[^/?#\s\"]*@")
_QUERY = re.compile(r"(://[^?\s\"]*\?)[^#\s\"]+")
_SECRET = frozenset({"webhooks", "redis_url", "audit_kafka_password", "mesh_key"})
"""Errors about these settings do not contain their values."""


class SettingsError(ValueError):
    """Some settings are wrong; the text has one line for each, with source and remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class _Given:
    value: object
    source: str


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds one flag for each setting, in groups, and `--config FILE`."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file with the settings below; write `_` instead of `-` (HANZO_PUBSUB_CONFIG)",
    )
    group = parser.add_argument_group()
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            group = parser.add_argument_group(GROUPS[name])
        flag = "--" + name.replace("_", "-")
        shown = _default_shown(name)
        text = f"{field.description} [default: {shown}]" if shown else str(field.description)
        text = text.replace("%", "%%")
        if field.annotation is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(flag, metavar=_metavar(name), default=None, help=text)


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """The effective settings.

    Args:
        flags: Values by setting name; None means that the flag is absent.
        environ: Environment variables; those that are not settings are ignored, unless the name is
            a likely typing error.
        file: A YAML mapping of setting names; relative paths in it are relative to its folder.

    Raises:
        SettingsError: For each unknown name and each value of a wrong type or out of range.
    """
    read = examine(flags, environ, file)
    if read.settings is None or read.problems:
        raise SettingsError(read.problems)
    return read.settings


@dataclass(frozen=True)
class Examined:
    """The result of reading.

    Attributes:
        settings: The settings, with defaults for wrong values; None if they contradict each other,
            or the file cannot be read.
        sources: The source of each valid setting.
        problems: One line per problem.
        wrong: Settings whose value was ignored.
        anyhow: Like `settings`, even if they contradict each other, to check the files that they
            name.
    """

    settings: Settings | None
    sources: Mapping[str, str]
    problems: Sequence[str]
    wrong: frozenset[str]
    anyhow: Settings | None = None

    def caused(self, problem: str) -> bool:
        """Whether a problem may only be a consequence of an ignored value."""
        return any(name in problem or name.replace("_", "-") in problem for name in self.wrong)


def examine(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Examined:
    """Reads all sources and reports all problems; same arguments as `load`."""
    problems: list[str] = []
    given: dict[str, _Given] = {}
    if file is not None:
        from_file = _from_file(file, problems)
        if from_file is None:
            return Examined(None, {}, problems, frozenset())
        given.update(from_file)
    given.update(_from_environment(environ or {}, problems))
    for name, value in (flags or {}).items():
        if name not in Settings.model_fields:
            problems.append(_unknown(name, "flag --" + name.replace("_", "-")))
        elif value is not None:
            given[name] = _Given(value, "flag --" + name.replace("_", "-"))
    values: dict[str, object] = {}
    for name, item in given.items():
        try:
            values[name] = _structured(name, item)
        except ValueError as error:
            problems.append(f"{name} ({item.source}): {_masked(str(error))}")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        details = error.errors()
        problems.extend(_describe(each, given) for each in details)
        # Ignore wrong values, to check the rest.
        for name in {str(detail["loc"][0]) for detail in details}:
            del values[name]
        settings = Settings.model_validate(values)
    wrong = frozenset(given) - frozenset(values)
    sources = {name: given[name].source for name in values}
    contradictions = [*conflicts(settings)]
    read = Examined(None if contradictions else settings, sources, problems, wrong, settings)
    more = [line for line in contradictions if not read.caused(line)]
    return replace(read, problems=[*problems, *more])


def dump(settings: Settings, sources: Mapping[str, str] | None = None) -> str:
    """The settings as YAML with the names of a settings file; secrets are masked.

    Args:
        settings: The settings.
        sources: The source of each setting, for a comment.
    """
    lines: list[str] = []
    for name in Settings.model_fields:
        value = _with_unit(name, _plain(getattr(settings, name)))
        text = yaml.safe_dump({name: value}, sort_keys=False, default_flow_style=False)
        source = (sources or {}).get(name)
        if source is not None:
            first, _, rest = text.partition("\n")
            text = f"{first}  # {source}\n{rest}"
        lines.append(text)
    return "".join(lines)


def unknown_flag(flag: str) -> str:
    """The error about an unknown flag."""
    if not flag.startswith("--"):
        return f"{flag}: only flags are accepted"
    name = flag[2:].partition("=")[0].removeprefix("no-").replace("-", "_")
    setting = closest(name)
    names = [setting] if setting else with_word(name)
    flags = " or ".join(f"--{each.replace('_', '-')}" for each in names)
    hint = f"; did you mean {flags}?" if flags else ""
    return f"{flag}: there is no such flag{hint}"


def _from_file(file: Path, problems: list[str]) -> dict[str, _Given] | None:
    source = f"file {file}"
    try:
        text = documents.read(file)
        loaded = documents.parse(text)
    except documents.DocumentError as error:
        problems.append(f"config ({source}): {error}")
        return None
    if loaded is None:
        return {}
    values = documents.mapping(loaded)
    if values is None:
        problems.append(f"config ({source}): must be a mapping of setting names to values")
        return None
    found: dict[str, _Given] = {}
    empty = PROTECTIVE & documents.blank_keys(text)
    for name, value in values.items():
        if name not in Settings.model_fields:
            problems.append(_unknown(name, source))
        elif value is not None or name in empty:
            if isinstance(value, str) and value and _is_path(name):
                value = str(file.parent / value)
            found[name] = _Given("" if value is None else value, source)
    return found


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, _Given]:
    found = {
        name.lower(): _Given(environ[name], f"environment {name}")
        for name in HIP_56_VARIABLES
        if environ.get(name)
    }
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or name in CLIENT_VARIABLES:
            continue
        if not value and name.lower() not in PROTECTIVE:
            continue
        if name.lower() in Settings.model_fields:
            found[name.lower()] = _Given(value, f"environment {variable}")
        elif closest(name.lower()) is not None:
            problems.append(_unknown(name.lower(), f"environment {variable}"))
    return found


def _is_path(name: str) -> bool:
    return Path in get_args(Settings.model_fields[name].annotation)


def _structured(name: str, item: _Given) -> object:
    """Parse the text of a flag or variable for a setting that is a list or map of objects."""
    value = item.value
    annotation = Settings.model_fields[name].annotation
    if isinstance(value, bool) and annotation is not bool:
        raise ValueError(f"is {str(value).lower()}; expected {_kind(name)}")
    if value == "" and (_is_path(name) or name == "listener_identities"):
        raise ValueError("is empty; give the path of a file, or leave the setting out")
    if not isinstance(value, str) or name not in _OBJECTS:
        return value
    if name == "listener_identities" and not value.lstrip().startswith(("{", "[")):
        return _document(value)
    try:
        loaded: object = json.loads(value)
    except ValueError:
        problem = "is text" if item.source.startswith("file ") else "is not JSON"
        raise ValueError(f"{problem}; expected {_kind(name)}") from None
    return loaded


def _document(path: str) -> object:
    try:
        return documents.parse(documents.read(Path(path)))
    except documents.DocumentError as error:
        raise ValueError(f"file {path}: {error}") from None


def _describe(detail: ErrorDetails, given: Mapping[str, _Given]) -> str:
    name = str(detail["loc"][0])
    item = given[name]
    # For a key of a map, pydantic appends `[key]`.
    nested = tuple(each for each in detail["loc"][1:] if each != "[key]")
    where = name + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in nested)
    kind = _kind(name)
    parts: list[str] = []
    absent = detail["type"] in {"missing", "extra_forbidden"}
    if name not in _SECRET and not absent:
        value: object = detail["input"] if nested else item.value
        parts.append(f"got {json.dumps(value, default=str)}")
    # Otherwise, the reason only repeats what is expected.
    repeats = kind == _PORT or detail["type"].endswith(("_parsing", "literal_error"))
    if nested or not repeats:
        parts.append(_reason(detail))
    # These reasons already state what a text must be.
    explained = detail["type"] in {"value_error", "string_type", "path_type"} and kind.startswith(
        "text"
    )
    if not explained and kind not in parts[-1]:
        parts.append(f"expected {kind}")
    return f"{where} ({item.source}): {_masked('; '.join(parts))}"


_PORT = "a port from 1 to 65535, or 0 for a free one"
_REASONS: Mapping[str, str] = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "string_type": "must be text; put it in quotes",
    "path_type": "must be text; put it in quotes",
    "string_pattern_mismatch": "has another format",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}
"""Plain words for errors of pydantic, by type."""


def _reason(detail: ErrorDetails) -> str:
    if found := _REASONS.get(detail["type"]):
        return found
    if detail["type"] == "too_short" or (
        detail["type"] == "string_too_short" and detail["input"] == ""
    ):
        return "must not be empty"
    reason = str(detail["msg"]).removeprefix("Value error, ")
    return (reason[:1].lower() + reason[1:]).replace("input should be", "must be", 1)


def _kind(name: str) -> str:
    field = Settings.model_fields[name]
    special = {
        "host": "an address such as 0.0.0.0 or ::, or a host name",
        "http_port": _PORT,
        "ws_port": _PORT,
        "webhooks": "a list of {url, secret, topics, events}",
        "history_classes": "a list of {topics, max_messages, max_age}",
        "org_limits": 'a map of organization to count, for example {"acme": 500}',
        "jwt_claims": 'a map of field to claim, for example {"orgs": "owner"}',
        "listener_identities": "a map of listener to {user, kind, orgs, …}, or a file with it",
        "event_stream": "a port, HOST:PORT or unix:PATH",
        "hub": "a port, HOST:PORT or unix:PATH",
        "signed_listen": "a port, HOST:PORT or unix:PATH",
        "signed_upstream": "a URL like ws://127.0.0.1:1633/pubsub/",
        "signed_upstream_topics": "OWNER:ID, several with commas",
        "sp_pub": "tcp://HOST:PORT, ipc://PATH or abstract://NAME",
        "redis_url": "a URL like redis://host:6379",
        "redis_prefix": "1 to 64 letters, digits, _ and -",
        "audit_kafka_topic": "1 to 249 letters, digits, _, - and .",
        "mesh_listen": "a port or HOST:PORT",
        "mesh_advertise": "HOST:PORT",
        "mesh_peer": "HOST:PORT, several with commas",
        "mesh_key": "at least 16 characters",
    }
    if name in special:
        return special[name]
    shown = _default_shown(name)
    for_example = f", for example {shown}" if shown else ""
    choices = _choices(field.annotation)
    if choices:
        return "one of " + ", ".join(choices)
    if field.annotation is bool:
        return "true or false"
    forms = next((FORMS[each] for each in metadata(field) if each in FORMS), None)
    if forms is not None:
        return forms
    kinds = _types(name)
    if int in kinds:
        return f"a whole number{for_example}"
    if float in kinds:
        return f"a number{for_example}"
    return f"text{for_example}"


def _default(name: str) -> object:
    field = Settings.model_fields[name]
    return cast("object", field.get_default(call_default_factory=True))  # pyright: ignore[reportUnknownMemberType]


def _types(name: str) -> tuple[object, ...]:
    """The type of a setting, and for an optional one the type of its value."""
    annotation = Settings.model_fields[name].annotation
    parts = (getattr(part, "__origin__", part) for part in get_args(annotation))
    return (annotation, *parts)


def _choices(annotation: object) -> tuple[str, ...]:
    origin = get_origin(annotation)
    if origin in {Annotated, Union, types.UnionType}:
        return next((found for part in get_args(annotation) if (found := _choices(part))), ())
    arguments = get_args(annotation)
    return arguments if arguments and all(isinstance(a, str) for a in arguments) else ()


def closest(name: str) -> str | None:
    """The setting with the most similar name, if any is similar."""
    found = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.75)
    return found[0] if found else None


def with_word(name: str) -> list[str]:
    """Some settings that have the name as a word, such as two for `port`."""
    return [each for each in Settings.model_fields if name in each.split("_")][:3]


def _unknown(name: str, source: str) -> str:
    setting = closest(name)
    hint = f"did you mean {setting}?" if setting else "`--check-config` lists all settings"
    return f"{name} ({source}): there is no such setting; {hint}"


def _metavar(name: str) -> str:
    field = Settings.model_fields[name]
    if choices := _choices(field.annotation):
        return "{" + ",".join(choices) + "}"
    if name in _OBJECTS:
        return "JSON"
    if found := next((METAVARS[each] for each in metadata(field) if each in METAVARS), None):
        return found
    kinds = _types(name)
    if Path in kinds:
        return "FILE"
    if int in kinds or float in kinds:
        return "N"
    return _PLACEHOLDERS.get(name) or name.rsplit("_", 1)[-1].upper()


def _with_unit(name: str, value: object) -> object:
    """A duration or size as text with its unit, which every source also accepts."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    text = written(value, metadata(Settings.model_fields[name]))
    return value if text == str(value) else text


def _default_shown(name: str) -> str:
    default = _default(name)
    if isinstance(default, int) and not isinstance(default, bool):
        return written(default, metadata(Settings.model_fields[name]))
    return _shown(default)


def _shown(default: object) -> str:
    plain = _plain(default)
    if plain is None or plain in ([], {}, False):
        return ""
    if plain is True:
        return "on"
    items = documents.sequence(plain)
    return ",".join(map(str, items)) if items is not None else str(plain)


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, str):
        return _masked(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if (items := documents.mapping(value)) is not None:
        return {key: _plain(item) for key, item in items.items()}
    return value


def _masked(text: str) -> str:
    """The text without user, password and query of a URL; a query may contain a key."""
    return _QUERY.sub(rf"\1{MASK}", _CREDENTIALS.sub(f"//{MASK}@", text))
