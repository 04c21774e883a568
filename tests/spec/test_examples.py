"""The schema, Python and TypeScript accept and reject the same examples."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.model import Model
from tests.spec.files import DEFINITIONS, EXAMPLES, ROOT, SCHEMA, Example

if TYPE_CHECKING:
    from pathlib import Path

# Types that TypeScript has no guard for: the client only sends them, or they are plain values.
UNGUARDED = {
    *("ClientFrame", "Timestamp", "Seq", "MessageId", "ErrorCode"),
    *(member["$ref"].rsplit("/", 1)[1] for member in DEFINITIONS["ClientFrame"]["oneOf"]),
}

# Python calls the envelope by the name that users import.
NAMES = {"Envelope": "Message"}

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


def adapter(kind: str) -> TypeAdapter[Any]:
    found = getattr(wire, NAMES.get(kind, kind))
    if isinstance(found, type) and issubclass(found, BaseModel):
        # Build the adapter first, so that it is as strict as the model.
        found.model_rebuild()
    return TypeAdapter(found)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_type_has_two_examples_of_either_sort(kind: str) -> None:
    own = [example for example in EXAMPLES if example.kind == kind]
    assert sum(example.valid for example in own) >= 2
    assert sum(not example.valid for example in own) >= 2


def test_every_example_belongs_to_a_type() -> None:
    assert {example.kind for example in EXAMPLES} == DEFINITIONS.keys()


@each_example
def test_the_schema_accepts_what_is_valid_and_nothing_else(example: Example) -> None:
    validator = jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{example.kind}"})
    assert validator.is_valid(example.value) is example.valid


@each_example
def test_python_accepts_what_is_valid_and_nothing_else(example: Example) -> None:
    if example.valid:
        adapter(example.kind).validate_json(example.text, strict=True)
    else:
        with pytest.raises(ValidationError):
            adapter(example.kind).validate_json(example.text, strict=True)


@each_example
def test_python_judges_decoded_json_like_its_text(example: Example) -> None:
    strict = None if DEFINITIONS[example.kind].get("type") == "object" else True
    if example.valid:
        adapter(example.kind).validate_python(example.value, strict=strict)
    else:
        with pytest.raises(ValidationError):
            adapter(example.kind).validate_python(example.value, strict=strict)


@each_example
def test_python_writes_what_it_read_and_defaults_besides(example: Example) -> None:
    if example.valid:
        value = adapter(example.kind).validate_json(example.text)
        if isinstance(value, Model):
            written = value.wire()
            assert holds(written, example.value)
            assert json.loads(value.model_dump_json(exclude_none=True)) == written
            assert type(value).model_validate(written) == value


def holds(whole: Any, part: Any) -> bool:
    """Whether `whole` contains all of `part`."""
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


def test_typescript_accepts_what_is_valid_and_nothing_else(tmp_path: Path) -> None:
    sources = ROOT / "js/src"
    subprocess.run(
        [
            *(ROOT / "node_modules/.bin/tsc", "--outDir", tmp_path, "--rootDir", sources),
            *("--target", "ES2022", "--module", "NodeNext", "--moduleResolution", "NodeNext"),
            *("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes"),
            *("--ignoreConfig", sources / "generated/http.ts"),
        ],
        check=True,
        timeout=50,
    )
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    cases = [{"kind": example.kind, "text": example.text} for example in EXAMPLES]
    judged = subprocess.run(
        ["node", ROOT / "tests/spec/judge.mjs", tmp_path / "generated"],
        input=json.dumps(cases),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=50,
    )
    verdicts = json.loads(judged.stdout)
    assert len(verdicts) == len(EXAMPLES)
    results = list(zip(EXAMPLES, verdicts, strict=True))
    assert {example.kind for example, got in results if got is None} == UNGUARDED
    wrong = [one.name for one, got in results if one.kind not in UNGUARDED and got is not one.valid]
    assert wrong == []


@pytest.mark.parametrize("union", ["ClientFrame", "ServerFrame"])
def test_an_unknown_frame_type_is_distinguished_from_a_broken_frame(union: str) -> None:
    with pytest.raises(ValidationError) as caught:
        adapter(union).validate_python({"type": "teleport"})
    assert caught.value.errors()[0]["type"] == "union_tag_invalid"


@pytest.mark.parametrize("union", ["ClientFrame", "ServerFrame"])
def test_a_frame_is_decoded_to_the_class_of_its_type(union: str) -> None:
    mapping = DEFINITIONS[union]["discriminator"]["mapping"]
    for example in EXAMPLES:
        if example.kind == union and example.valid:
            value = adapter(union).validate_json(example.text)
            assert isinstance(value, BaseModel)
            assert type(value).__name__ == mapping[example.value["type"]].rsplit("/", 1)[1]
