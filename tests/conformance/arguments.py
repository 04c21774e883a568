"""Reads `arguments.yaml`: what each call does with each value of each argument.

Each argument is tested with every value of the file. `refuses` says how most of them are refused,
`accepts` names the accepted ones, `others` the ones that are refused differently, and `leaves_out`
the ones that are not tested. The name of a kind, such as `texts`, stands for its values that are
not named. A refusal is written `CODE FIELD`, or only `CODE` for an error without a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from tests.conformance.peer_process import LANGUAGES, Language
from tests.conformance.scenarios import Loader, WrongFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json: TypeAlias = dict[str, Any]
ACCEPTED: Final = "accepted"
TIMEOUTS: Final = {"timeout": "timeout", "request_timeout": ""}
"""Codes of a call that was accepted and not answered in time, and the argument that allows it.

Only the responder of the test answers requests, so every other accepted request ends like this.
"""


@dataclass(frozen=True)
class Argument:
    """One argument of a call.

    Attributes:
        path: Where the value stands in the arguments of the call, keys joined by slashes.
        outcomes: The outcome of each value, by its name and the language.
    """

    path: str
    outcomes: Mapping[str, Mapping[Language, str]]


@dataclass(frozen=True)
class Call:
    """One call of the API with valid arguments, and the arguments that are replaced in turn.

    Attributes:
        do: The command of `tests/conformance/peers`.
        given: Its arguments.
        arguments: The replaced arguments.
    """

    do: str
    given: Json
    arguments: tuple[Argument, ...]

    @property
    def id(self) -> str:
        """The command and the first replaced argument."""
        return f"{self.do}-{self.arguments[0].path}"


@cache
def values() -> Mapping[str, Any]:
    """Return every value by its name."""
    return {name: value for kind in _document()["values"].values() for name, value in kind.items()}


@cache
def calls() -> tuple[Call, ...]:
    """Return every call.

    Raises:
        WrongFile: An argument names an unknown value.
    """
    return tuple(
        Call(
            one["do"],
            one.get("with", {}),
            tuple(_argument(path, listed) for path, listed in one["arguments"].items()),
        )
        for one in _document()["calls"]
    )


def replaced(given: Any, path: str, value: Any) -> Any:
    """Return arguments in which the value at a path is replaced, or added."""
    key, _, rest = path.partition("/")
    if isinstance(given, list):
        at = int(key)
        return [*given[:at], replaced(given[at], rest, value) if rest else value, *given[at + 1 :]]
    return {**given, key: replaced(given.get(key, {}), rest, value) if rest else value}


def outcome(answer: Json, path: str) -> str:
    """Return the outcome that an answer of a peer shows.

    Args:
        answer: The answer, with `gives` or `fails`.
        path: The replaced argument.
    """
    if "fails" not in answer:
        return ACCEPTED
    error = answer["fails"]
    code = error.get("code") or f"{error['type']}: {error['message']}"
    if TIMEOUTS.get(code) in ("", path):
        return ACCEPTED
    return f"{code} {error['field']}" if error.get("field") else str(code)


@cache
def _document() -> Json:
    text = Path(__file__).with_name("arguments.yaml").read_text(encoding="utf-8")
    found: Json = yaml.load(text, Loader)
    return found


def _argument(path: str, listed: Json) -> Argument:
    kinds: Mapping[str, Iterable[str]] = _document()["values"]
    groups: list[tuple[Any, list[str]]] = [
        (ACCEPTED, listed.get("accepts", [])),
        *((one["refuses"], one["values"]) for one in listed.get("others", ())),
        (None, listed.get("leaves_out", [])),
    ]
    default = listed.get("refuses", ACCEPTED)
    of_kinds = {name: found for found, names in groups for name in names if name in kinds}
    found = {name: of_kinds.get(kind, default) for kind, names in kinds.items() for name in names}
    for value, names in groups:
        for name in names:
            if name in found:
                found[name] = value
            elif name not in kinds:
                raise WrongFile(f"arguments.yaml, {path}: there is no value `{name}`")
    return Argument(
        path, {name: _by_language(value) for name, value in found.items() if value is not None}
    )


def _by_language(refusal: str | dict[Language, str]) -> Mapping[Language, str]:
    return dict.fromkeys(LANGUAGES, refusal) if isinstance(refusal, str) else refusal
