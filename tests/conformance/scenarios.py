"""Reads the scenarios in `scenarios/*.yaml`, and checks them with `scenario.schema.json`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator

from tests.conformance.peer_process import LANGUAGES, Language

Json = dict[str, Any]
HERE: Final = Path(__file__).parent
_SCHEMA: Final = Draft202012Validator(
    json.loads((HERE / "scenario.schema.json").read_text(encoding="utf-8"))
)


# The C parser, which the wheels of PyYAML contain, is ten times as fast.
_Fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Fastest):  # type: ignore[misc]
    """A YAML 1.2 loader: `on` is a string, and only `true` and `false` are booleans."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


class WrongFile(Exception):
    """A scenario file is invalid; the text names the place."""


@dataclass(frozen=True)
class Scenario:
    """One behaviour, described as steps.

    Attributes:
        group: Title of its file.
        name: A sentence about the behaviour.
        given: The state before the first step.
        steps: Actions and expectations.
    """

    group: str
    name: str
    given: Json = field(default_factory=dict)
    steps: list[Json] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The name in lower case, joined by dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def parse(text: str, source: str) -> list[Scenario]:
    """Return the scenarios of one file.

    Raises:
        WrongFile: The file does not match the schema.
    """
    document = yaml.load(text, Loader)
    for problem in _SCHEMA.iter_errors(document):
        raise WrongFile(f"{source}, {problem.json_path}: {problem.message}")
    return [
        Scenario(document["group"], one["name"], one.get("given", {}), one["steps"])
        for one in document["scenarios"]
    ]


@cache
def load(folder: Path = HERE / "scenarios") -> tuple[Scenario, ...]:
    """Return all scenarios, file by file.

    Raises:
        WrongFile: A file does not match the schema, or two scenarios have the same name.
    """
    found: list[Scenario] = []
    for path in sorted(folder.glob("*.yaml")):
        found += parse(path.read_text(encoding="utf-8"), path.name)
    ids = [scenario.id for scenario in found]
    if twice := {one for one in ids if ids.count(one) > 1}:
        raise WrongFile(f"more than one scenario is named {', '.join(sorted(twice))}")
    return tuple(found)


def known_failures(path: Path = HERE / "known_failures.yaml") -> dict[tuple[str, Language], str]:
    """Return the reasons of known failures by scenario and language.

    Raises:
        WrongFile: A language or scenario is unknown, or a reason is missing.
    """
    listed: dict[str, dict[Language, str]] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    names = {scenario.name for scenario in load()}
    found: dict[tuple[str, Language], str] = {}
    for name, reasons in listed.items():
        if name not in names:
            raise WrongFile(f"{path.name}: there is no scenario `{name}`")
        for language, reason in reasons.items():
            if language not in LANGUAGES or not reason:
                raise WrongFile(f"{path.name}, `{name}`: give a language and a reason")
            found[name, language] = reason
    return found
