"""An AsyncAPI document and access rules from a contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import yaml

from pubsub_server.contract.header import DO_NOT_EDIT
from pubsub_server.contract.python_types import definitions

if TYPE_CHECKING:
    from pubsub_server.contract.document import Contract, Topic


def asyncapi(contract: Contract) -> str:
    """An AsyncAPI 3.1 document: one channel per topic, who sends and who receives."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for number, topic in enumerate(contract.topics, 1):
        key = f"topic{number}"
        address, parameters = _address(topic)
        channels[key] = {
            "address": address,
            **({"description": topic.description} if topic.description else {}),
            **({"parameters": parameters} if parameters else {}),
            "messages": {topic.name: {"$ref": f"#/components/messages/{topic.name}"}},
        }
        for action, verb in (("send", "publish"), ("receive", "subscribe")):
            operations[f"{verb}{number}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{key}"},
                "summary": f"Who may {verb}: {_who(topic, verb)}.",
                "messages": [{"$ref": f"#/channels/{key}/messages/{topic.name}"}],
            }
    document: dict[str, Any] = {
        "asyncapi": "3.1.0",
        "info": {
            "title": contract.title,
            "version": contract.version,
            **({"description": contract.description} if contract.description else {}),
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                topic.name: {
                    "name": topic.name,
                    "payload": {"$ref": f"#/components/schemas/{topic.name}"},
                }
                for topic in contract.topics
            },
            "schemas": {name: _moved(one) for name, one in definitions(contract).items()},
        },
    }
    return f"# {DO_NOT_EDIT}\n{_yaml(document)}"


def access_rules(contract: Contract) -> str:
    """Access rules for `serve --rules`: one for each topic, in the order of the contract."""
    rules: list[dict[str, Any]] = []
    for topic in contract.topics:
        rule: dict[str, Any] = {
            "pattern": topic.pattern.text,
            "require": dict(topic.subscribers),
        }
        match topic.publishers:
            case "services":
                pass
            case "subscribers":
                rule["publish"] = True
            case "admins":
                rule["publish"] = False
            case requirement:
                rule["publish"] = {"require": requirement}
        rules.append(rule)
    return (
        f"# {DO_NOT_EDIT}\n"
        "# The first rule that matches decides. Without `publish`, only services publish.\n"
        f"{_yaml({'rules': rules})}"
    )


def _address(topic: Topic) -> tuple[str, dict[str, Any]]:
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    for number, segment in enumerate(topic.pattern.segments, 1):
        if segment == "**":
            name, meaning = f"segments{number}", "One segment or more."
        elif segment == "*":
            name, meaning = f"segment{number}", "One segment."
        elif segment.startswith("<"):
            name, meaning = segment[1:-1], "One segment."
        else:
            parts.append(segment)
            continue
        parts.append(f"{{{name}}}")
        parameters[name] = {"description": meaning}
    return ".".join(parts), parameters


def _who(topic: Topic, verb: str) -> str:
    wanted = topic.publishers if verb == "publish" else topic.subscribers
    return wanted if isinstance(wanted, str) else json.dumps(wanted)


def _moved(value: object) -> Any:
    if isinstance(value, dict):
        return {
            key: item.replace("#/$defs/", "#/components/schemas/", 1)
            if key == "$ref" and isinstance(item, str)
            else _moved(item)
            for key, item in cast("dict[str, object]", value).items()
        }
    if isinstance(value, list):
        return [_moved(item) for item in cast("list[object]", value)]
    return value


def _yaml(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice two times, without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True
