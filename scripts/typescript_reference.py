"""Writes the TypeScript reference as Markdown, from the exports of each entry of the package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.typescript_sources import (
    Declaration,
    Doc,
    before_value,
    declared,
    end_of,
    entries,
    exported,
    imported,
    members_of,
    parse_doc,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PAGES: Final[Mapping[str, Sequence[str]]] = {
    "typescript-client": (".",),
    "typescript-modules": ("./react", "./requests", "./schema"),
    "typescript-streams": ("./streams", "./sse", "./vue", "./svelte", "./models", "./ai-sdk"),
    "typescript-tools": ("./testing", "./tokens", "./webhooks"),
    "typescript-signed": ("./signed", "./soc"),
}
"""Entries of the package by page, in order."""
WIDTH: Final = 88
"""Maximum characters of a signature on one line."""
LONGEST: Final = 1_600
"""Maximum characters of a type that the page shows; longer ones have only their description."""
OPTIONS: Final[Mapping[str, str]] = {
    "PubSubOptions": "#new-pubsuboptions",
    "SendQueue": "#sendqueue",
    "ReceiveQueue": "#receivequeue",
    "RetryOptions": "#retry",
    "Waiting": "#operations",
    "SubscribeOptions": "#subscribe",
    "PublishOptions": "#publish",
    "PublishManyOptions": "#publish",
    "HistoryOptions": "#history",
    "RequestOptions": "#requests",
    "RespondOptions": "#requests",
    "ReadStreamOptions": "#readstream",
    "WriteStreamOptions": "#writestream",
}
"""Interfaces whose members are on the page of the options."""


def page(name: str) -> str:
    """Return the exported names of the entries of one page.

    Raises:
        KeyError: The package has an entry that no page lists.
    """
    listed = {entry for page in PAGES.values() for entry in page}
    if missing := entries().keys() - listed:
        raise KeyError(f"list {', '.join(missing)} in PAGES of {Path(__file__).name}")
    return "\n".join(text for entry in PAGES[name] for text in _entry(entry)).rstrip()


def _entry(entry: str) -> Iterator[str]:
    title = "@hanzoai/pubsub" + entry.removeprefix(".")
    found = exported(entries()[entry])
    errors = [each for each in found if _is_error(each)]
    others = [each for each in found if each not in errors and each.kind != "type"]
    types = [each for each in found if each not in errors and each.kind == "type"]
    yield f"## `{title}`\n"
    for each in sorted(others, key=lambda one: _order(one)):
        yield from _described(each)
    if types:
        yield "### Types\n" if entry == "." else f"### Types of `{title}`\n"
        yield from (text for each in types for text in _type(each))
    if errors:
        yield "### Errors\n"
        yield _errors(errors)


def _order(one: Declaration) -> int:
    return ("class", "function", "const", "interface").index(one.kind)


def _is_error(one: Declaration) -> bool:
    if one.kind == "const":
        return ": ErrorClass<" in one.source
    return one.kind == "class" and re.search(r"extends (\w*Error)\b", one.source) is not None


def _described(one: Declaration) -> Iterator[str]:
    yield f"### `{one.name}`\n"
    doc = parse_doc(one.doc)
    if not doc.text:
        raise ValueError(f"{one.name} has no description")
    if one.kind == "function":
        yield _fenced(_call(one.name, one.source.removeprefix("function").lstrip("* ")))
    elif arrow := re.fullmatch(r"const (\w+) = (\([^=]*\): [^=]+?) =>[\s\S]*", one.source):
        yield _fenced(_call(one.name, arrow[1] + arrow[2]))
    elif one.kind == "const":
        is_typed = re.match(r"const \w+:", one.source)
        yield _fenced(before_value(one.source) if is_typed else one.source)
    yield from _parts(doc)
    if one.name in OPTIONS:
        yield f"[Options](typescript.md{OPTIONS[one.name]}) lists the members.\n"
    elif one.kind in ("class", "interface"):
        yield from _members(one)


def _parts(doc: Doc) -> Iterator[str]:
    if doc.text:
        yield f"{doc.text}\n"
    if doc.params:
        yield _table(
            ("argument", "meaning"), ((f"`{name.lstrip('_')}`", text) for name, text in doc.params)
        )
    if doc.returns:
        yield f"Returns: {doc.returns}\n"
    if doc.throws:
        yield _table(("throws", "when"), ((f"`{name}`", text) for name, text in doc.throws))


def _members(one: Declaration) -> Iterator[str]:
    members = members_of(one)
    fields = [each for each in members if not each.is_method]
    if not any(each.doc.text for each in members):
        if one.kind == "interface":
            yield _fenced(one.source)
        return
    if fields:
        rows = (
            (f"`{each.name}{'?' * each.is_optional}`", f"`{each.text}`", _meaning(each.doc))
            for each in fields
        )
        yield _table(("member", "type", "meaning"), rows)
    for each in members:
        if each.is_method:
            dot = "" if each.name[0] == "[" else "."
            is_new = each.name == "constructor"
            title = f"new {one.name}" if is_new else f"{one.name}{dot}{each.name}"
            yield f"#### `{title}`\n"
            yield _fenced(_call(one.name, each.text))
            yield from _parts(each.doc)


def _meaning(doc: Doc) -> str:
    throws = "; ".join(f"throws `{name}`: {text}" for name, text in doc.throws)
    return " ".join(f"{doc.text} {throws}".split())


def _call(owner: str, head: str) -> str:
    """Return the signature of a method: a static one with its class, others with an object."""
    bare = re.sub(r"^(?:static |async |override |\*)*", "", head)
    if bare.startswith("constructor"):
        arguments = re.sub(r"private readonly _", "", bare.removeprefix("constructor"))
        bare = f"new {owner}{arguments}"
    prefix = f"{owner}." if "static " in head else ""
    waits = "await " if re.search(r"\)\s*: Promise<", bare) else ""
    call = f"{waits}{prefix}{bare}".replace("= NONE", "= {}")
    # The description gives the value of a constant.
    return _tidy(re.sub(r"(\w+)(: \w+) = [A-Z_]{3,}", r"\1?\2", call))


def _tidy(signature: str) -> str:
    """Return a signature on one line, or with one argument per line if it is too long."""
    flat = " ".join(signature.split()).replace("( ", "(").replace(", )", ")").rstrip()
    flat = flat.replace("< ", "<").replace(", >", ">").replace("(| ", "(").replace(" )", ")")
    flat = re.sub(r"\{ [^{}]* \}: ", "options: ", flat)
    if len(flat) <= WIDTH:
        return flat
    open_at = _arguments(flat)
    if open_at is None:
        return flat
    parts, at = _split(flat, open_at)
    return f"{flat[: open_at + 1]}\n" + "".join(f"  {part},\n" for part in parts) + flat[at:]


def _arguments(flat: str) -> int | None:
    """Return the position of the bracket that begins the arguments."""
    depth = 0
    for at, letter in enumerate(flat):
        if letter == "(" and depth == 0:
            return at
        depth += (letter in "<[{") - (letter in "]}" or (letter == ">" and flat[at - 1] != "="))
    return None


def _split(flat: str, open_at: int) -> tuple[list[str], int]:
    parts, depth, last = list[str](), 0, open_at + 1
    for at in range(open_at, len(flat)):
        letter = flat[at]
        depth += letter in "([{<"
        depth -= letter in ")]}" or (letter == ">" and flat[at - 1] != "=")
        if depth == 0 or (depth == 1 and letter == ","):
            if part := flat[last:at].strip():
                parts.append(part)
            last = at + 1
        if depth == 0:
            return parts, at
    raise ValueError(f"the arguments of {flat} do not end")


def _type(one: Declaration) -> Iterator[str]:
    doc = parse_doc(one.doc)
    if not doc.text:
        raise ValueError(f"{one.name} has no description")
    yield f"#### `{one.name}`\n"
    source = one.source
    if alias := re.fullmatch(rf"type {one.name} = ([A-Z]\w+)", source):
        source = f"type {one.name} ={imported(one.file, alias[1]).source.partition('=')[2]}"
    if len(source) <= LONGEST:
        yield _fenced(f"{source};")
    yield from _parts(doc)


def _errors(found: Sequence[Declaration]) -> str:
    rows: list[tuple[str, str, str]] = []
    for one in sorted(found, key=lambda each: each.name):
        base, more = _error(one)
        text = " ".join(parse_doc(one.doc).text.split())
        rows.append((f"`{one.name}`", f"`{base}`", f"{text} {more}".strip()))
    return _table(("error", "is a", "meaning and members"), rows)


def _error(one: Declaration) -> tuple[str, str]:
    """Return the base class of an error, and its members."""
    if one.kind == "const":
        text = read("errors.ts")
        match = re.search(rf"^export interface {one.name} extends ([\w, ]+) \{{", text, re.M)
        if match is None:
            raise KeyError(f"the error {one.name} has no interface")
        body = text[match.start() : end_of(text, match.start(), "interface")]
        base = match[1].partition(",")[0]
        if "SizeDetails" in match[1]:
            return base, _sizes()
    else:
        body = one.source
        extends = re.search(r"extends (\w+)", body)
        base = extends[1].replace("CodedError", "PubSubError") if extends else "Error"
    members = [
        (name, " ".join(parse_doc(comment).text.split()))
        for comment, name in re.findall(
            r"^  /\*\*((?:(?!\*/)[\s\S])*)\*/\n  (?:declare )?(?:readonly|get) (\w+)", body, re.M
        )
    ]
    return base, " ".join(f"`{name}`: {text}" for name, text in members)


def _sizes() -> str:
    body = declared("errors.ts")["SizeDetails"].source
    found = re.findall(r"^  /\*\* (.*) \*/\n  readonly (\w+)", body, re.M)
    return " ".join(f"`{name}`: {text}" for text, name in found)


def _fenced(code: str) -> str:
    code = re.sub(r"^ *// biome-ignore.*\n", "", code, flags=re.MULTILINE)
    return f"```typescript\n{code}\n```\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", "\\\\|", " ".join(text.split()))
