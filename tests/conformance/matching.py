"""Compares observed values with the expectations of a scenario.

A mapping must contain the expected keys and may contain others; a list must contain exactly the
expected items. Special values:

    {$any: true}                 any value, but the key must exist
    {$absent: true}              the key does not exist, or is null
    {$type: int}                 int, number, string, boolean, list, mapping
    {$matches: "^msg_"}          a string that contains this regular expression
    {$set: [...]}                a list of these items, in any order
    {$has: [...]}                a list with at least these items
    {$least: 1} {$most: 9}       a number in this range
    {$one_of: [...]}             one of these values
    {$save: name, is: ...}       store the value, which must match `is`, as {$ref: name}
    {$python: ..., $typescript: ...}   different expectations for the languages
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "list": (list,),
    "mapping": (dict,),
}
MISSING = object()


def mismatches(expected: Any, seen: Any, saved: dict[str, Any], language: str) -> list[str]:
    """Return the differences, one per line; store the values to save if there are none."""
    found: dict[str, Any] = {}
    differences = list(_differ(expected, seen, "", found, language))
    if not differences:
        saved.update(found)
    return differences


def _differ(
    expected: Any, seen: Any, path: str, saved: dict[str, Any], language: str
) -> Iterator[str]:
    if isinstance(expected, dict) and any(key.startswith("$") for key in expected):
        yield from _special(expected, seen, path, saved, language)
    elif isinstance(expected, dict):
        if not isinstance(seen, dict):
            yield f"{path or 'it'} is {_shown(seen)}, not a mapping"
            return
        for key, value in expected.items():
            at = f"{path}.{key}" if path else key
            yield from _differ(value, seen.get(key, MISSING), at, saved, language)
    elif isinstance(expected, list):
        if not isinstance(seen, list) or len(seen) != len(expected):
            yield f"{path or 'it'} is {_shown(seen)}, expected {len(expected)} items"
            return
        for n, (one, other) in enumerate(zip(expected, seen, strict=True)):
            yield from _differ(one, other, f"{path}[{n}]", saved, language)
    elif type(expected) is not type(seen) or expected != seen:
        whole = isinstance(seen, int | float) and expected == seen
        if not whole or isinstance(seen, bool) or isinstance(expected, bool):
            yield f"{path or 'it'} is {_shown(seen)}, expected {_shown(expected)}"


def _special(
    expected: dict[str, Any], seen: Any, path: str, saved: dict[str, Any], language: str
) -> Iterator[str]:
    at = path or "it"
    if "$save" in expected:
        inner = expected.get("is", {"$any": True})
        yield from _differ(inner, seen, path, saved, language)
        saved[expected["$save"]] = seen
        return
    if f"${language}" in expected:
        yield from _differ(expected[f"${language}"], seen, path, saved, language)
        return
    ((name, wanted),) = expected.items()
    if name == "$absent":
        if seen is not MISSING and seen is not None:
            yield f"{at} is {_shown(seen)}, expected nothing"
    elif seen is MISSING:
        yield f"{at} does not exist"
    elif name in ("$set", "$has"):
        yield from _unordered(wanted, seen, path, saved, language, exact=name == "$set")
    elif name == "$one_of":
        if all(list(_differ(one, seen, path, {}, language)) for one in wanted):
            yield f"{at} is {_shown(seen)}, expected one of {_shown(wanted)}"
    elif not PREDICATES[name](wanted, seen):
        yield f"{at} is {_shown(seen)}, expected {name} {_shown(wanted)}"


def _unordered(
    wanted: list[Any], seen: Any, path: str, saved: dict[str, Any], language: str, *, exact: bool
) -> Iterator[str]:
    if not isinstance(seen, list):
        yield f"{path or 'it'} is {_shown(seen)}, not a list"
        return
    left = list(seen)
    for one in wanted:
        for n, other in enumerate(left):
            found: dict[str, Any] = {}
            if not list(_differ(one, other, path, found, language)):
                saved.update(found)
                del left[n]
                break
        else:
            yield f"{path or 'it'} has no {_shown(one)} among {_shown(seen)}"
    if exact and left:
        yield f"{path or 'it'} has {_shown(left)} beyond what was expected"


def _is_type(name: str, seen: Any) -> bool:
    return isinstance(seen, TYPES[name]) and (name == "boolean" or not isinstance(seen, bool))


def _number(seen: Any) -> bool:
    return isinstance(seen, int | float) and not isinstance(seen, bool)


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "$any": lambda _, __: True,
    "$type": _is_type,
    "$matches": lambda pattern, seen: isinstance(seen, str) and bool(re.search(pattern, seen)),
    "$least": lambda bound, seen: _number(seen) and seen >= bound,
    "$most": lambda bound, seen: _number(seen) and seen <= bound,
}


def _shown(value: Any) -> str:
    if value is MISSING:
        return "not there"
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
