"""What an access rule requires of an identity: parsed, evaluated, explained; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pubsub_server.settings import documents

if TYPE_CHECKING:
    from pubsub_server.access.rule_patterns import Bindings
    from pubsub_server.auth.identity import Identity

MAX_ALTERNATIVES = 64
"""Ways to meet one requirement, after `all` is multiplied out."""

_PLACEHOLDER = re.compile(r"<([a-zA-Z_][a-zA-Z0-9_]*)>")
_FLAGS = ("authenticated", "service", "admin")
_NAMED = ("org_membership", "session_owner", "session_shared", "agent_access", "user_id")

Alternative = Mapping[str, frozenset[str]]
"""One way to meet a requirement: the values that the placeholders must have."""


@dataclass(frozen=True, slots=True)
class Flag:
    """`authenticated`, `service` or `admin`: true or false."""

    name: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Named:
    """One of an identity's lists must contain a literal value, or the value of a placeholder."""

    name: str
    value: str
    placeholder: bool


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of these requirements."""

    parts: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class All:
    """All of these requirements."""

    parts: tuple[Requirement, ...]


Requirement = Flag | Named | Any | All


def parse(value: object, placeholders: frozenset[str]) -> Requirement:
    """Parses the value of `require`: several keys are `all`.

    Raises:
        ValueError: A name or type is wrong, or a placeholder does not occur in the pattern.
    """
    items = documents.mapping(value)
    if not items:
        raise ValueError(
            "`require` must be a mapping such as `authenticated: true`; use "
            + ", ".join((*_FLAGS, *_NAMED, "any", "all"))
        )
    parts = tuple(_parse_one(key, item, placeholders) for key, item in items.items())
    requirement = parts[0] if len(parts) == 1 else All(parts)
    if _count(requirement) > MAX_ALTERNATIVES:
        raise ValueError(f"`require` has over {MAX_ALTERNATIVES} combinations; split the rule")
    return requirement


def met(requirement: Requirement, identity: Identity, bindings: Bindings) -> bool:
    """Whether the identity meets it, with the placeholders replaced by `bindings`.

    A requirement on a placeholder without a binding is not met.
    """
    match requirement:
        case Flag(name, wanted):
            return _flag(name, identity) is wanted
        case Named(name, value, placeholder):
            found = bindings.get(value) if placeholder else value
            return found is not None and found in held(name, identity)
        case Any(parts):
            return any(met(part, identity, bindings) for part in parts)
        case All(parts):
            return all(met(part, identity, bindings) for part in parts)


def alternatives(requirement: Requirement, identity: Identity) -> list[Alternative]:
    """Every way in which this identity can meet it; empty if there is none."""
    match requirement:
        case Flag(name, wanted):
            return [{}] if _flag(name, identity) is wanted else []
        case Named(name, value, placeholder):
            values = held(name, identity)
            if placeholder:
                return [{value: values}] if values else []
            return [{}] if value in values else []
        case Any(parts):
            return [way for part in parts for way in alternatives(part, identity)]
        case All(parts):
            ways: list[Alternative] = [{}]
            for part in parts:
                ways = [_both(way, other) for way in ways for other in alternatives(part, identity)]
            return [way for way in ways if all(way.values())]


def held(name: str, identity: Identity) -> frozenset[str]:
    """The values of an identity that a requirement of this name compares."""
    match name:
        case "org_membership":
            return identity.orgs
        case "session_owner":
            return identity.sessions_owned
        case "session_shared":
            return identity.sessions_shared
        case "agent_access":
            return identity.agents
        case _:
            return frozenset() if identity.anonymous else frozenset((identity.user_id,))


def describe(requirement: Requirement, bindings: Bindings) -> str:
    """The requirement in words, for explanations of a decision."""
    match requirement:
        case Flag(name, wanted):
            return name if wanted else f"not {name}"
        case Named(name, value, placeholder):
            return f"{name} of `{bindings.get(value, f'<{value}>') if placeholder else value}`"
        case Any(parts):
            return "(" + " or ".join(describe(part, bindings) for part in parts) + ")"
        case All(parts):
            return "(" + " and ".join(describe(part, bindings) for part in parts) + ")"


def _parse_one(key: str, value: object, placeholders: frozenset[str]) -> Requirement:
    if key in {"any", "all"}:
        items = documents.sequence(value)
        if not items:
            raise ValueError(f"`{key}` must be a list of requirements")
        parts = tuple(parse(item, placeholders) for item in items)
        return Any(parts) if key == "any" else All(parts)
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise ValueError(f"`{key}` is true or false")
        return Flag(key, value)
    if key in _NAMED:
        if isinstance(value, bool | int):
            raise ValueError(f"`{key}` is not text; put it in quotes")
        if not isinstance(value, str) or not value:
            raise ValueError(f"`{key}` is a `<placeholder>` of the pattern or a literal value")
        match = _PLACEHOLDER.fullmatch(value)
        if match and match[1] not in placeholders:
            known = ", ".join(f"<{name}>" for name in sorted(placeholders)) or "none"
            raise ValueError(f"`{key}` names {value}, but the pattern has {known}")
        if not match and ("<" in value or ">" in value):
            raise ValueError(f"`{key}` is {value!r}; a placeholder is written <name>")
        return Named(key, match[1] if match else value, match is not None)
    known = ", ".join((*_FLAGS, *_NAMED, "any", "all"))
    raise ValueError(f"unknown requirement `{key}`; use {known}")


def _flag(name: str, identity: Identity) -> bool:
    match name:
        case "authenticated":
            return not identity.anonymous
        case "service":
            return identity.service
        case _:
            return identity.admin


def _both(one: Alternative, other: Alternative) -> Alternative:
    return {
        **one,
        **{name: values & one.get(name, values) for name, values in other.items()},
    }


def _count(requirement: Requirement) -> int:
    match requirement:
        case Any(parts):
            return sum(_count(part) for part in parts)
        case All(parts):
            total = 1
            for part in parts:
                total *= _count(part)
            return total
        case _:
            return 1
