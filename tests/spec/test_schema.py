"""The schema is valid, fully described, and agrees with the defaults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS
from tests.spec.files import DEFINITIONS, SCHEMA, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from nodes(value)


def test_the_schema_is_valid_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_reference_leads_to_a_definition() -> None:
    for node in nodes(SCHEMA):
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/$defs/") in DEFINITIONS


def test_every_definition_is_described() -> None:
    for name, definition in DEFINITIONS.items():
        assert definition["description"].endswith("."), name


def test_every_field_is_described_or_refers_to_what_is() -> None:
    for name, definition in DEFINITIONS.items():
        for key, field in definition.get("properties", {}).items():
            assert "description" in field or "$ref" in field or "const" in field, f"{name}.{key}"


def test_every_required_field_exists() -> None:
    for name, definition in DEFINITIONS.items():
        if definition.get("type") == "object":
            assert set(definition["required"]) <= definition["properties"].keys(), name


def test_types_are_open_to_fields_of_later_versions() -> None:
    for definition in DEFINITIONS.values():
        assert "additionalProperties" not in definition


def test_every_frame_belongs_to_one_side() -> None:
    frames = {name for name in DEFINITIONS if name.endswith("Frame")} - {
        "ClientFrame",
        "ServerFrame",
    }
    client, server = (
        [member["$ref"].rsplit("/", 1)[1] for member in DEFINITIONS[side]["oneOf"]]
        for side in ("ClientFrame", "ServerFrame")
    )
    assert sorted([*client, *server]) == sorted(frames)


def test_all_frames_have_types_of_their_own() -> None:
    types = [
        definition["properties"]["type"]["const"]
        for definition in DEFINITIONS.values()
        if "const" in definition.get("properties", {}).get("type", {})
    ]
    assert len(types) == len(set(types)) == 16


BOUNDS = [
    (LIMITS.max_topic, ["Topic", "maxLength"]),
    (LIMITS.max_topic, ["TopicPattern", "maxLength"]),
    (LIMITS.max_batch, ["PublishFrame", "properties", "messages", "maxItems"]),
    (LIMITS.max_batch, ["BatchRequest", "properties", "messages", "maxItems"]),
    (LIMITS.max_subscriptions, ["SubscribeFrame", "properties", "topics", "maxItems"]),
    (LIMITS.max_subscriptions, ["UnsubscribeFrame", "properties", "topics", "maxItems"]),
    (LIMITS.max_subscriptions, ["StreamSubscription", "properties", "topics", "maxItems"]),
    (LIMITS.max_subscriptions, ["SubscribeRequest", "properties", "subscriptions", "maxItems"]),
]


@pytest.mark.parametrize(("limit", "path"), BOUNDS, ids=lambda value: str(value))
def test_a_limit_of_the_service_is_a_bound_of_the_schema(limit: int, path: list[str]) -> None:
    node: Any = DEFINITIONS
    for step in path:
        node = node[step]
    assert node == limit


def test_the_limit_of_a_payload_is_stated_where_payloads_are_described() -> None:
    for name in ("Publication", "PublishRequest"):
        assert (
            f"{LIMITS.max_payload:,} bytes"
            in DEFINITIONS[name]["properties"]["data"]["description"]
        )


def test_the_pages_of_history_are_those_of_the_description() -> None:
    parameters = read_yaml("openapi.yaml")["paths"]["/v1/topics/{topic}/history"]["get"][
        "parameters"
    ]
    limit = next(p["schema"] for p in parameters if p["name"] == "limit")
    assert (limit["default"], limit["maximum"]) == (
        LIMITS.history_page_default,
        LIMITS.history_page_max,
    )
    assert limit["minimum"] <= CLIENT.history_page <= limit["maximum"]


def test_the_limits_of_hip_56_are_the_defaults() -> None:
    assert LIMITS.max_payload == 256 * 1024
    assert (LIMITS.publish_rate_user, LIMITS.publish_rate_service) == (10, 100)
    assert (LIMITS.connections_per_user, LIMITS.connections_per_org) == (100, 10_000)
    assert (LIMITS.history_max_messages, LIMITS.history_max_age) == (100, 3600)
    assert (LIMITS.history_page_default, LIMITS.history_page_max) == (50, 500)
    assert (LIMITS.auth_deadline, LIMITS.presence_timeout) == (5000, 30_000)
    assert LIMITS.expiring_notice == 60_000


def test_the_defaults_fit_each_other() -> None:
    assert 0 < CLIENT.retry_base <= CLIENT.retry_cap
    assert CLIENT.ping_interval + CLIENT.pong_timeout < LIMITS.presence_timeout
    assert CLIENT.refresh_margin < LIMITS.expiring_notice
    assert CLIENT.open_timeout < CLIENT.fallback_after
    assert CLIENT.fallback_after < CLIENT.suspend_after
    assert CLIENT.remembered_ids >= LIMITS.history_max_messages
    assert LIMITS.history_max_messages * LIMITS.max_payload < CLIENT.max_frame
    assert LIMITS.sse_keepalive < LIMITS.presence_timeout


def test_the_schema_is_written_without_duplicate_keys() -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), keys
        return dict(pairs)

    from tests.spec.files import SPEC

    for name in ("pubsub.schema.json", "topics.json"):
        json.loads((SPEC / name).read_text(encoding="utf-8"), object_pairs_hook=once)
