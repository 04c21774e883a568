"""Both descriptions pass the official validators, and all versions are equal."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from openapi_spec_validator import validate

from hanzoai.pubsub.generated.defaults import CLIENT
from tests.spec.files import DEFINITIONS, ROOT, SPEC, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

BUNDLE: dict[str, Any] = json.loads(
    (ROOT / "server-mock/pubsub_server/generated/openapi.json").read_text(encoding="utf-8")
)
OPENAPI: dict[str, Any] = read_yaml("openapi.yaml")
ASYNCAPI: dict[str, Any] = read_yaml("asyncapi.yaml")
PATHS = {
    "/v1/topics/{topic}/messages": {"post"},
    "/v1/messages:batch": {"post"},
    "/v1/topics/{topic}/history": {"get"},
    "/v1/topics/{topic}/presence": {"get"},
    "/v1/topics/{topic}/occupancy": {"get"},
    "/v1/positions": {"post"},
    "/v1/topics": {"get"},
    "/v1/connections": {"get"},
    "/v1/connections/{client_id}": {"delete"},
    "/v1/subscribe": {"get", "post"},
    "/v1/session": {"get"},
    "/v1/access": {"get"},
    "/v1/openapi.json": {"get"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}
METHODS = {"get", "post", "put", "delete", "patch"}


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in BUNDLE["paths"].items():
        for method in METHODS & item.keys():
            yield f"{method} {path}", item[method]


def test_openapi_is_valid() -> None:
    assert OPENAPI["openapi"].startswith("3.1.")
    validate(OPENAPI, base_uri=(SPEC / "openapi.yaml").as_uri())


def test_the_bundle_is_valid_by_itself() -> None:
    validate(BUNDLE)
    text = json.dumps(BUNDLE)
    assert set(re.findall(r'"\$ref": "(#/components/\w+/)', text)) >= {"#/components/schemas/"}
    assert re.findall(r'"\$ref": "(?!#/components/)', text) == []
    assert "$defs" not in text


def test_asyncapi_is_valid() -> None:
    assert ASYNCAPI["asyncapi"] == "3.1.0"
    checked = subprocess.run(
        ["node", ROOT / "scripts/check_asyncapi.mjs", SPEC / "asyncapi.yaml"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=50,
    )
    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert "valid" in checked.stdout


def test_every_path_is_described_with_its_methods() -> None:
    described = {path: METHODS & item.keys() for path, item in OPENAPI["paths"].items()}
    assert described == PATHS


def test_every_operation_has_a_unique_name_and_a_description() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names)) == 17
    assert all(operation["summary"] for _, operation in operations())


def test_every_error_is_a_problem_document() -> None:
    for name, operation in operations():
        for status, response in operation["responses"].items():
            if status >= "400":
                target = BUNDLE["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
                assert target["content"].keys() == {"application/problem+json"}, (name, status)


def test_every_answer_that_asks_to_wait_has_retry_after() -> None:
    for name in ("RateLimited", "ConnectionLimit", "Unavailable"):
        assert "Retry-After" in BUNDLE["components"]["responses"][name]["headers"]


def test_everything_below_v1_but_this_description_wants_a_token() -> None:
    for name, operation in operations():
        open_to_all = operation.get("security") == []
        assert open_to_all is ("/v1/" not in name or name.endswith("openapi.json")), name
        assert open_to_all or "401" in operation["responses"], name


def media(node: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the schemas with their examples."""
    if isinstance(node, dict):
        if "schema" in node and "example" in node:
            yield node["schema"], node["example"]
        for example in node.get("examples", {}).values() if "schema" in node else ():
            yield node["schema"], example["value"]
        for value in node.values():
            yield from media(value)
    elif isinstance(node, list):
        for value in node:
            yield from media(value)


def test_every_example_is_what_it_stands_for() -> None:
    shown = list(media(BUNDLE))
    assert len(shown) > 20
    for schema, example in shown:
        whole = {**schema, "components": BUNDLE["components"]}
        jsonschema.Draft202012Validator(whole).validate(example)


def test_every_type_of_the_bundle_is_the_one_of_the_schema() -> None:
    inlined = json.loads(
        json.dumps(BUNDLE["components"]["schemas"]).replace("#/components/schemas/", "#/$defs/")
    )
    assert {name: DEFINITIONS[name] for name in inlined if name in DEFINITIONS} == {
        name: schema for name, schema in inlined.items() if name != "Health"
    }


def test_every_frame_is_a_message_of_the_socket() -> None:
    payloads = {
        message["payload"]["$ref"].rsplit("/", 1)[1]: message["name"]
        for message in ASYNCAPI["components"]["messages"].values()
    }
    frames = {
        **DEFINITIONS["ClientFrame"]["discriminator"]["mapping"],
        **DEFINITIONS["ServerFrame"]["discriminator"]["mapping"],
    }
    assert payloads == {ref.rsplit("/", 1)[1]: name for name, ref in frames.items()}


@pytest.mark.parametrize(("side", "action"), [("ClientFrame", "receive"), ("ServerFrame", "send")])
def test_every_frame_has_its_operation(side: str, action: str) -> None:
    def named(references: list[dict[str, str]]) -> set[str]:
        keys = {reference["$ref"].rsplit("/", 1)[1] for reference in references}
        return {ASYNCAPI["components"]["messages"][key]["name"] for key in keys}

    output: set[str] = set()
    for operation in ASYNCAPI["operations"].values():
        if operation["action"] == action:
            output |= named(operation["messages"])
        elif side == "ServerFrame":
            output |= named(operation["reply"]["messages"])
    assert output == DEFINITIONS[side]["discriminator"]["mapping"].keys()


def test_every_message_of_the_socket_has_examples_that_are_valid() -> None:
    for name, message in ASYNCAPI["components"]["messages"].items():
        kind = message["payload"]["$ref"].rsplit("/", 1)[1]
        assert message["examples"], name
        validator = jsonschema.Draft202012Validator({"$defs": DEFINITIONS, **DEFINITIONS[kind]})
        for example in message["examples"]:
            validator.validate(example["payload"])


def test_every_part_has_the_same_version() -> None:
    def toml(path: str) -> str:
        version: str = tomllib.loads((ROOT / path).read_text("utf-8"))["project"]["version"]
        return version

    versions = {
        toml("pyproject.toml"),
        toml("server-mock/pyproject.toml"),
        json.loads((ROOT / "js/package.json").read_text(encoding="utf-8"))["version"],
        OPENAPI["info"]["version"],
        ASYNCAPI["info"]["version"],
        BUNDLE["info"]["version"],
    }
    assert len(versions) == 1


def test_the_protocol_has_one_version_apart_from_the_parts() -> None:
    assert OPENAPI["info"]["x-protocol"] == CLIENT.protocol_version
    assert ASYNCAPI["info"]["x-protocol"] == CLIENT.protocol_version
