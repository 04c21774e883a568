"""A contract file: topic pattern → JSON Schema, description, who publishes. Checked when read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pubsub_server.access import requirements, rule_patterns
from pubsub_server.settings import documents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pubsub_server.access.rule_patterns import RulePattern

MAX_TOPICS: Final = 1_000
_KEYS: Final = ("title", "version", "description", "undeclared", "topics", "schemas")
_TOPIC_KEYS: Final = ("schema", "name", "description", "publishers", "subscribers")
_PUBLISHERS: Final = ("services", "subscribers", "admins")
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_REFERENCE: Final = "#/schemas/"


class ContractError(ValueError):
    """A contract file is wrong; the text names the file and the topic or key."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The contract for the topics of one pattern.

    Attributes:
        pattern: Literal segments, `<placeholder>`, `*` or `**`, as in access rules.
        name: Name of the payload's type in generated code.
        description: Meaning of the messages.
        schema: JSON Schema 2020-12 of `data`, with `$ref` into `#/$defs/`.
        publishers: `services`, `subscribers` (those and services), `admins`, or a requirement of
            access rules.
        subscribers: A requirement of access rules.
    """

    pattern: RulePattern
    name: str
    description: str
    schema: Mapping[str, Any]
    publishers: str | Mapping[str, Any]
    subscribers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract.

    Attributes:
        title: Title of the AsyncAPI document.
        version: Version of the AsyncAPI document.
        description: Description of the AsyncAPI document.
        allow_undeclared: Whether clients may publish to topics that no pattern matches.
        topics: In the order of the file; the first pattern that matches a topic decides.
        definitions: Shared schemas, by name.
    """

    title: str
    version: str
    description: str
    allow_undeclared: bool
    topics: tuple[Topic, ...]
    definitions: Mapping[str, Any]

    def find(self, topic: str) -> Topic | None:
        """The contract for a topic; None if it does not declare the topic."""
        for declared in self.topics:
            if rule_patterns.bind(declared.pattern, topic) is not None:
                return declared
        return None

    def full_schema(self, topic: Topic) -> dict[str, Any]:
        """The schema of a topic, including all definitions that it refers to."""
        return {"$defs": dict(self.definitions), **topic.schema}


def load(file: Path) -> Contract:
    """Read and check a contract.

    Raises:
        ContractError: The file cannot be read or is not valid.
    """
    try:
        return _contract(documents.parse(documents.read(file)))
    except (documents.DocumentError, ValueError) as error:
        raise ContractError(f"{file}: {error}") from None


def _contract(value: object) -> Contract:
    fields = documents.mapping(value)
    if fields is None:
        raise ValueError("must be a mapping with the key `topics`")
    _known(fields, _KEYS, "a contract")
    undeclared = fields.get("undeclared", "allow")
    if undeclared not in ("allow", "refuse"):
        raise ValueError("`undeclared` must be `allow` or `refuse`")
    schemas = documents.mapping(fields.get("schemas", {}))
    if schemas is None:
        raise ValueError("`schemas` must be a mapping of names to JSON Schemas")
    for name in schemas:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"schema `{name}`: a name is a capital letter, then letters and digits"
            )
    topics = documents.mapping(fields.get("topics"))
    if not topics:
        raise ValueError("`topics` must be a mapping of topic patterns, with one or more of them")
    if len(topics) > MAX_TOPICS:
        raise ValueError(f"there are {len(topics)} topics; at most {MAX_TOPICS} are allowed")
    read: list[Topic] = []
    for pattern, entry in topics.items():
        try:
            read.append(_topic(pattern, entry))
        except ValueError as error:
            raise ValueError(f"topic `{pattern}`: {error}") from None
    _check_names(read, schemas)
    return Contract(
        _text(fields, "title", "Topics"),
        _text(fields, "version", "1.0.0"),
        _text(fields, "description", ""),
        undeclared == "allow",
        tuple(read),
        cast("dict[str, Any]", _moved(schemas)),
    )


def _topic(pattern: str, value: object) -> Topic:
    parsed = rule_patterns.parse(pattern)
    fields = documents.mapping(value)
    if fields is None:
        raise ValueError("must be a mapping with the key `schema`")
    _known(fields, _TOPIC_KEYS, "a topic")
    schema = documents.mapping(fields.get("schema"))
    if schema is None:
        raise ValueError("`schema` is missing or not a mapping")
    name = fields.get("name", _name_of(schema, pattern))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("`name` must be a capital letter, then letters and digits")
    publishers = fields.get("publishers", "services")
    if publishers not in _PUBLISHERS:
        requirements.parse(publishers, parsed.placeholders)
    subscribers = fields.get("subscribers", {"authenticated": True})
    requirements.parse(subscribers, parsed.placeholders)
    return Topic(
        parsed,
        name,
        _text(fields, "description", ""),
        cast("dict[str, Any]", _moved(schema)),
        cast("str | dict[str, Any]", publishers),
        cast("dict[str, Any]", subscribers),
    )


def _check_names(topics: list[Topic], schemas: Mapping[str, object]) -> None:
    taken: dict[str, Topic] = {}
    for topic in topics:
        before = taken.setdefault(topic.name, topic)
        if before.schema != topic.schema:
            raise ValueError(
                f"topic `{topic.pattern.text}`: the name `{topic.name}` is that of"
                f" `{before.pattern.text}`, which has another schema; set `name`"
            )
        if topic.name in schemas and topic.schema.get("$ref") != f"#/$defs/{topic.name}":
            raise ValueError(
                f"topic `{topic.pattern.text}`: the name `{topic.name}` is that of a schema under"
                " `schemas`; refer to it, or set another `name`"
            )


def _name_of(schema: Mapping[str, object], pattern: str) -> str:
    reference, title = schema.get("$ref"), schema.get("title")
    if isinstance(reference, str) and reference.startswith(_REFERENCE):
        return reference.removeprefix(_REFERENCE)
    words = re.findall(r"[A-Za-z0-9]+", title if isinstance(title, str) else pattern)
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if _NAME.fullmatch(name) else f"Topic{name}"[:64]


def _moved(value: object) -> object:
    """A schema whose references point where generators and validators expect definitions."""
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return {
            str(key): item.replace(_REFERENCE, "#/$defs/", 1)
            if key == "$ref" and isinstance(item, str)
            else _moved(item)
            for key, item in fields.items()
        }
    if isinstance(value, list):
        return [_moved(item) for item in cast("list[object]", value)]
    return value


def _known(fields: Mapping[str, object], keys: tuple[str, ...], what: str) -> None:
    for key in fields:
        if key not in keys:
            raise ValueError(f"{what} has no key `{key}`; use {', '.join(keys)}")


def _text(fields: Mapping[str, object], key: str, default: str) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"`{key}` must be text")  # noqa: TRY004
    return value
