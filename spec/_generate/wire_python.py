"""Writes Python wire types with datamodel-code-generator."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from spec._generate.text import header

_BASE = "hanzoai.pubsub.model."
_WITH_DATA = ("Envelope", "Publication", "PublishRequest")
_GENERIC = re.compile(r"class Envelope\(Payload\):(.*?)\n    data: Any\n", re.DOTALL)
_FLAGS = (
    *("--input-file-type", "jsonschema"),
    *("--schema-version", "2020-12"),
    "--strict-refs",
    *("--output-model-type", "pydantic_v2.BaseModel"),
    *("--target-python-version", "3.11"),
    *("--target-pydantic-version", "2.12"),
    "--skip-root-model",
    "--use-type-alias",
    "--use-annotated",
    "--use-union-operator",
    *("--enum-field-as-literal", "all"),
    "--use-one-literal-as-default",
    "--use-field-description",
    "--use-schema-description",
    "--use-single-line-docstring",
    *("--type-mappings", "uri=string"),
    "--use-exact-imports",
    "--use-double-quotes",
    "--disable-timestamp",
    *("--formatters", "builtin"),
)


def wire(schema: Path) -> str:
    """The module `generated/wire.py`."""
    with TemporaryDirectory() as folder:
        target, head = Path(folder, "wire.py"), Path(folder, "header.txt")
        head.write_text(header("#", f"spec/{schema.name}") + "\n", encoding="utf-8")
        subprocess.run(
            [
                sys.executable,
                "-m",
                "datamodel_code_generator",
                *("--input", str(schema), "--output", str(target)),
                *("--base-class", f"{_BASE}Model"),
                *("--base-class-map", json.dumps(dict.fromkeys(_WITH_DATA, f"{_BASE}Payload"))),
                *("--custom-file-header-path", str(head)),
                *_FLAGS,
            ],
            check=True,
        )
        text = target.read_text(encoding="utf-8")
    text = text.replace(
        "from typing import Annotated, Any, Literal",
        "from typing import Annotated, Any, Generic, Literal",
    ).replace(
        f"from {_BASE[:-1]} import Model, Payload",
        f"from {_BASE[:-1]} import Data_co, Model, Payload",
    )
    text, found = _GENERIC.subn(
        r"class Envelope(Payload, Generic[Data_co]):\1\n    data: Data_co\n", text, count=1
    )
    if not found or "import Data_co, " not in text or "Generic, " not in text:
        raise SystemExit(
            "spec/_generate/wire_python.py: no Envelope with `data: Any` to make generic"
        )
    # Python calls the envelope by the name that users import.
    text = re.sub(r"\bEnvelope\b", "Message", text)
    # A field with a default other than null is never null.
    text = re.sub(r'(: Annotated\[str) \| None(, .*\] = "message"\n)', r"\1\2", text)
    return _list_attributes(text)


def _list_attributes(text: str) -> str:
    """Move the descriptions of fields into the docstrings of their classes, where `help` is."""
    lines: list[str | None] = list(text.splitlines())
    for model in ast.parse(text).body:
        if not isinstance(model, ast.ClassDef):
            continue
        summary, *members = model.body
        about: list[str] = []
        for field, description in itertools.pairwise(members):
            words = _string(description)
            if isinstance(field, ast.AnnAssign) and words is not None:
                about += _entry(f"{ast.unparse(field.target)}: {words}")
                _delete(lines, description)
        words = _string(summary)
        if words is not None and about:
            start = summary.lineno - 1
            _delete(lines, summary)
            lines[start] = "\n".join(
                (f'    """{words}', "", "    Attributes:", *about, '    """', "")
            )
    return "\n".join(line for line in lines if line is not None) + "\n"


def _string(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return None


def _entry(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent=" " * 8, subsequent_indent=" " * 12)


def _delete(lines: list[str | None], statement: ast.stmt) -> None:
    assert statement.end_lineno is not None
    for number in range(statement.lineno - 1, statement.end_lineno):
        lines[number] = None
