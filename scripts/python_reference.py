"""Writes the Python reference as Markdown from signatures and docstrings, for site and code host.

griffe reads the sources without importing them. A page lists the names in `__all__` of its modules,
in the order of `GROUPS` if the module has groups.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
WIDTH: Final = 88
"""Maximum characters of a signature on one line."""

MANY: Final = 8
"""A dataclass with at least this number of fields gets only a table."""

PAGES: Final[Mapping[str, Sequence[str]]] = {
    "python": ("hanzoai.pubsub",),
    "python-streams": ("hanzoai.pubsub.streams",),
    "python-spark": ("hanzoai.pubsub.spark",),
    "python-protocols": (
        *(f"hanzoai.pubsub.{name}" for name in ("signed", "soc", "eventstream", "hub", "sp")),
        *(f"hanzoai.pubsub.{name}.blocking" for name in ("eventstream", "hub", "sp")),
    ),
    "python-tools": tuple(
        f"hanzoai.pubsub.{name}" for name in ("testing", "tokens", "webhooks", "tracing")
    ),
}
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "Clients": ("PubSubClient", "PubSub"),
    "Subscriptions and topics": (
        *("Subscription", "BlockingSubscription", "TopicHandle", "BlockingTopicHandle"),
        *("Batch", "BlockingBatch", "Responder", "BlockingResponder"),
    ),
    "What you receive": (
        *("Message", "Sender", "Gap", "PresenceChange", "PresenceMember", "Occupancy", "Event"),
        *("StateChange", "StateName", "SubscriptionStats", "occupancy_of", "users_of"),
    ),
    "What you publish": ("Publication", "Published", "Denial"),
    "Names and patterns of topics": (
        *("is_wildcard", "matches", "validate_pattern", "validate_topic"),
    ),
    "The server": ("Limits", "TopicInfo", "PositionList", "TopicPosition"),
    "Tokens": ("Token", "TokenContext"),
    "Types of arguments": (
        *(
            "Outgoing",
            "OutgoingOf",
            "Topics",
            "Types",
            "Duration",
            "Ttl",
            "Since",
            "Before",
            "Via",
            "OnInvalid",
        ),
        *("Handler", "GapHandler", "StateLoader", "TokenCallback"),
    ),
    "Options": (
        *("ClientOptions", "Settings", "SendQueue", "SendPolicy", "ReceiveQueue"),
        *("ReceivePolicy", "RetryOptions", "TransportChoice"),
    ),
}
LIKE: Final[Mapping[str, str]] = {
    "PubSub": "PubSubClient",
    "BlockingSubscription": "Subscription",
    "BlockingTopicHandle": "TopicHandle",
    "BlockingBatch": "Batch",
    "BlockingResponder": "Responder",
    "BlockingStreamReader": "StreamReader",
    "BlockingStreamWriter": "StreamWriter",
}
"""Blocking classes that have the methods of another class, without `await`."""
SAME: Final[Mapping[str, str]] = {"Settings": "ClientOptions"}
"""Classes whose attributes another class describes in the same words. Editors show both."""

BASES: Final = frozenset({"hanzoai.pubsub.links.clients"})
"""Modules of base classes that have no entry of their own: subclasses show their members."""


def page(name: str) -> str:
    """Return the text of one page, without its introduction."""
    modules = PAGES[name]
    return "\n".join(
        text for module in modules for text in _module(module, titled=len(modules) > 1)
    ).rstrip()


@cache
def _package() -> griffe.Module:
    loader = griffe.GriffeLoader(
        search_paths=[ROOT / "python"], docstring_parser=griffe.Parser.google
    )
    package = loader.load("hanzoai.pubsub")
    loader.resolve_aliases()
    assert isinstance(package, griffe.Module)
    return package


def _module(path: str, *, titled: bool) -> Iterator[str]:
    inner = path.removeprefix("hanzoai.pubsub").removeprefix(".")
    module = _package()[inner] if inner else _package()
    names = _public(module)
    if titled:
        yield f"## `{path}`\n"
        yield f"{_prose(_summary(module))}\n"
    groups = dict(GROUPS) if path == "hanzoai.pubsub" else {"": tuple(names)}
    errors = [name for name in names if _is_error(_target(module, name))]
    placed = {name for group in groups.values() for name in group}
    if missing := [name for name in names if name not in placed and name not in errors]:
        raise KeyError(f"place {', '.join(missing)} in GROUPS of {Path(__file__).name}")
    if unknown := placed - set(names):
        raise KeyError(f"{', '.join(unknown)} in GROUPS is not exported by {path}")
    for title, group in groups.items():
        if title:
            yield f"## {title}\n"
        for name in group:
            if name not in errors:
                yield from _object(name, _target(module, name))
    if errors:
        yield f"{'###' if titled else '##'} Errors\n"
        yield from _errors(module, errors)


def _public(module: griffe.Object | griffe.Alias) -> list[str]:
    """Return the names that a module exports; without `__all__`, its own documented names."""
    exported: Iterable[str] = [str(name) for name in module.exports or ()]
    if not exported:
        exported = [
            name
            for name, member in module.members.items()
            if not name.startswith("_") and not member.is_alias and _summary(member)
        ]
    return [
        name
        for name in exported
        if not name.startswith("_") and not _target(module, name).is_module
    ]


def _target(module: griffe.Object | griffe.Alias, name: str) -> griffe.Object:
    found = module.members[name]
    if found.is_module and name in found.members:
        found = found.members[name]  # a function in a module of the same name
    return found.final_target if isinstance(found, griffe.Alias) else found


def _is_error(found: griffe.Object) -> bool:
    if not isinstance(found, griffe.Class):
        return False
    bases = {str(base).rsplit(".", 1)[-1] for base in found.bases}
    if bases & {"Exception", "PubSubError", "ValueError", "RuntimeError"}:
        return True
    return any(_is_error(base) for base in found.resolved_bases if isinstance(base, griffe.Class))


# ---------------------------------------------------------------- one object


def _object(
    name: str, found: griffe.Object, level: int = 3, types: Mapping[str, str] | None = None
) -> Iterator[str]:
    yield f"{'#' * level} `{name}`\n"
    if isinstance(found, griffe.Class):
        yield from _class(name, found, level)
    elif isinstance(found, griffe.Function):
        yield _fenced(_signature(found, name, types=types))
        yield from _docstring(found)
    elif isinstance(found, griffe.Attribute):
        value = f" = {found.value}" if found.value is not None else ""
        note = "" if str(found.annotation) == "TypeAlias" else f": {found.annotation}"
        yield _fenced(f"{name}{note if found.annotation else ''}{value}")
        yield from _docstring(found)


def _class(name: str, found: griffe.Class, level: int) -> Iterator[str]:
    built = found.members.get("__init__")
    if isinstance(built, griffe.Function) and _is_made_by_programs(found, built):
        yield _fenced(_signature(built, name, returns=False))
    yield from _docstring(found)
    if like := LIKE.get(name):
        yield f"The methods of `{like}`, without `await`.\n"
        return
    rows = list(_attributes(found))
    if same := SAME.get(name):
        other = found.module.members[same]
        assert isinstance(other, griffe.Class)
        described = {attribute: meaning for attribute, _, meaning in _attributes(other)}
        if differing := [each for each, _, meaning in rows if described[each] != meaning]:
            raise ValueError(f"{name} and {same} describe {', '.join(differing)} differently")
        return
    if rows:
        columns = 3 if any(meaning for _, _, meaning in rows) else 2
        head = ("attribute", "type", "meaning")[:columns]
        yield _table(head, (row[:columns] for row in rows))
    types = _type_arguments(found)
    for member in _members(found):
        public = not member.name.startswith("_")
        if public and isinstance(member, griffe.Function) and _summary(member):
            yield from _object(f"{name}.{member.name}", member, level + 1, types)


def _members(found: griffe.Class) -> Iterator[griffe.Object | griffe.Alias]:
    """Yield the members of a class, and those of its base classes in `BASES`."""
    yield from found.members.values()
    for base in found.resolved_bases:
        if isinstance(base, griffe.Class) and base.module.path in BASES:
            yield from (one for one in _members(base) if one.name not in found.members)


def _type_arguments(found: griffe.Class) -> dict[str, str]:
    """Return what a class passes to its generic base classes in `BASES`, by type variable."""
    given: dict[str, str] = {}
    for base, written in zip(found.resolved_bases, found.bases, strict=False):
        if not (isinstance(base, griffe.Class) and base.module.path in BASES):
            continue
        generic = base.bases[-1] if base.bases else None
        if isinstance(written, griffe.ExprSubscript) and isinstance(generic, griffe.ExprSubscript):
            given[str(generic.slice)] = str(written.slice)
    return given


def _is_made_by_programs(found: griffe.Class, built: griffe.Function) -> bool:
    """Whether programs call the class: its docstring describes arguments, or it has few fields."""
    if _section(found, "parameters"):
        return True
    return "dataclass" in found.labels and len(built.parameters) <= MANY


def _attributes(found: griffe.Class) -> Iterator[tuple[str, str, str]]:
    described = _section(found, "attributes")
    for each in described:
        yield f"`{each.name}`", _type(each.annotation), _line(each.description)
    names = {each.name for each in described}
    arguments = {each.name for each in _section(found, "parameters")}
    for member in _members(found):
        public = not member.name.startswith("_") and member.name not in names
        if public and isinstance(member, griffe.Attribute) and member.annotation is not None:
            text = _description(member) or _alias(found, str(member.annotation))
            if not text and member.name in arguments:
                continue
            yield f"`{member.name}`", _type(member.annotation), _line(text)


def _alias(found: griffe.Class, annotation: str) -> str:
    """Return the meaning of a type alias of the same module."""
    named = found.module.members.get(annotation.removesuffix(" | None"))
    return _summary(named) if isinstance(named, griffe.Attribute | griffe.TypeAlias) else ""


def _errors(module: griffe.Object | griffe.Alias, names: Sequence[str]) -> Iterator[str]:
    rows: list[tuple[str, str, str]] = []
    for name in names:
        found = _target(module, name)
        assert isinstance(found, griffe.Class)
        names_of_bases = (str(base).rsplit(".", 1)[-1] for base in found.bases)
        bases = ", ".join(
            f"`{base.replace('_CodedError', 'PubSubError')}`" for base in names_of_bases
        )
        more = " ".join(
            f"`{each.name}`: {_line(each.description)}" for each in _section(found, "attributes")
        )
        rows.append((f"`{name}`", bases, f"{_line(_description(found))} {more}".strip()))
    yield _table(("error", "is a", "meaning and attributes"), rows)


# ---------------------------------------------------------------- docstrings


def _parsed(found: griffe.Object | griffe.Alias) -> list[Any]:
    return [] if found.docstring is None else list(found.docstring.parsed)


def _section(found: griffe.Object | griffe.Alias, kind: str) -> list[Any]:
    for section in _parsed(found):
        if section.kind.value == kind:
            return list(section.value)
    return []


def _description(found: griffe.Object | griffe.Alias) -> str:
    texts = [section.value for section in _parsed(found) if section.kind.value == "text"]
    return "\n\n".join(texts)


def _summary(found: griffe.Object | griffe.Alias) -> str:
    return _description(found).split("\n\n", 1)[0]


def _docstring(found: griffe.Object) -> Iterator[str]:
    for section in _parsed(found):
        kind, value = section.kind.value, section.value
        if kind == "text":
            yield f"{_prose(value)}\n"
        elif kind == "parameters":
            rows = ((f"`{each.name}`", _line(each.description)) for each in value)
            yield _table(("argument", "meaning"), rows)
        elif kind in ("returns", "yields"):
            text = " ".join(_line(each.description) for each in value)
            yield f"{kind.capitalize()}: {text}\n"
        elif kind == "raises":
            rows = ((f"`{each.annotation}`", _line(each.description)) for each in value)
            yield _table(("raises", "when"), rows)
        elif kind == "examples":
            for _, text in value:
                yield f"{_prose(text)}\n"
        elif kind == "admonition":
            yield f"**{section.title}** {_prose(value.description)}\n"


def _prose(text: str) -> str:
    """Convert a docstring to Markdown: literals, and indented blocks as code."""
    parts: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            parts.append(_fenced("\n".join(line[4:] for line in block.splitlines())).rstrip())
        else:
            text = _literals(block)
            parts.append(f"{text[:-2]}:" if text.endswith("::") else text)
    return "\n\n".join(part for part in parts if part != ":")


def _line(text: str) -> str:
    """Convert a docstring to the text of a table cell."""
    return _literals(" ".join(text.split())).replace("|", "\\|")


def _type(annotation: object) -> str:
    text = re.sub(r"Annotated\[(.+), Field\(.*\)\]", r"\1", str(annotation or ""))
    return f"`{text}`".replace("|", "\\|") if text else ""


def _literals(text: str) -> str:
    return re.sub(r"``(.+?)``", lambda found: f"`{' '.join(found[1].split())}`", text, flags=re.S)


# ---------------------------------------------------------------- Markdown


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def _fenced(code: str) -> str:
    return f"```py\n{code}\n```\n"


def _signature(
    function: griffe.Function,
    name: str,
    *,
    returns: bool = True,
    types: Mapping[str, str] | None = None,
) -> str:
    parts: list[str] = []
    kinds = griffe.ParameterKind
    keyword_only = False
    parameters = [each for each in function.parameters if each.name not in ("self", "cls")]
    for at, each in enumerate(parameters):
        if each.kind is kinds.keyword_only and not keyword_only:
            keyword_only = True
            if not any(other.kind is kinds.var_positional for other in parameters):
                parts.append("*")
        star = "*" * ((each.kind is kinds.var_positional) + 2 * (each.kind is kinds.var_keyword))
        note = f": {each.annotation}" if each.annotation is not None else ""
        equals = " = " if note else "="
        default = "" if each.default is None or star else f"{equals}{each.default}"
        parts.append(f"{star}{each.name}{note}{default}")
        positional = each.kind is kinds.positional_only
        following = parameters[at + 1].kind if at + 1 < len(parameters) else None
        if positional and following is not kinds.positional_only:
            parts.append("/")
    returned = (types or {}).get(str(function.returns), function.returns)
    result = f" -> {returned}" if returns and returned is not None else ""
    prefix = "await " if "async" in function.labels and not _yields(function) else ""
    head = f"{prefix}{name}"
    short = f"{head}({', '.join(parts)}){result}"
    if len(short) <= WIDTH:
        return short
    return f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _yields(function: griffe.Function) -> bool:
    return str(function.returns).startswith(("AsyncIterator", "AsyncGenerator"))
