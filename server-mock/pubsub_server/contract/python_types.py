"""Python models of a contract, by datamodel-code-generator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pubsub_server.contract.document import ContractError
from pubsub_server.contract.header import DO_NOT_EDIT

if TYPE_CHECKING:
    from pubsub_server.contract.document import Contract

_FLAGS = (
    *("--input-file-type", "jsonschema"),
    *("--output-model-type", "pydantic_v2.BaseModel"),
    *("--target-python-version", "3.11"),
    "--skip-root-model",
    "--use-annotated",
    "--use-union-operator",
    "--use-standard-collections",
    *("--enum-field-as-literal", "all"),
    "--use-one-literal-as-default",
    "--use-title-as-name",
    "--use-schema-description",
    "--use-field-description",
    "--use-double-quotes",
    "--disable-timestamp",
    *("--formatters", "builtin"),
)


def python_types(contract: Contract) -> str:
    """A module with a pydantic model for each schema.

    Raises:
        ContractError: datamodel-code-generator is not installed, or cannot read a schema.
    """
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "contract.json"), Path(folder, "types.py")
        source.write_text(json.dumps({"$defs": definitions(contract)}), encoding="utf-8")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "datamodel_code_generator"),
                *("--input", str(source), "--output", str(target)),
                *("--custom-file-header", f"# {DO_NOT_EDIT}"),
                *_FLAGS,
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            if "No module named datamodel_code_generator" in done.stderr:
                raise ContractError(
                    "--python needs datamodel-code-generator. Install it: "
                    "pip install 'hanzoai-pubsub-server[generate]'"
                )
            last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise ContractError(f"datamodel-code-generator cannot read the schemas: {last}")
        return target.read_text(encoding="utf-8")


def definitions(contract: Contract) -> dict[str, Any]:
    """Every type of a contract by name: shared schemas, and schemas of single topics."""
    found = dict(contract.definitions)
    for topic in contract.topics:
        if topic.name not in found:
            own: dict[str, Any] = dict(topic.schema)
            if topic.description and "$ref" not in own:
                own.setdefault("description", topic.description)
            found[topic.name] = own
    return found
