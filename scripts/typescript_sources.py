"""Reads the exported declarations of the TypeScript sources, with their comments and members.

It reads text, because TypeScript has no stable API for programs, and relies on the layout of the
formatter: declarations begin a line, and their members are indented by two spaces.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE: Final = Path(__file__).resolve().parent.parent / "js"
SOURCES: Final = PACKAGE / "src"
_EXPORTS: Final = re.compile(
    r"^export (?P<type>type )?(?:\{(?P<names>[^}]*)\}|\*) from '(?P<file>[^']+)';", re.MULTILINE
)
_DECLARED: Final = re.compile(
    r"^(?:/\*\*(?P<doc>(?:(?!\*/)[\s\S])*)\*/\n(?://[^\n]*\n)*)?"
    r"export (?:declare |abstract |async )*"
    r"(?P<kind>class|interface|type|function|const)\*? (?P<name>\w+)",
    re.MULTILINE,
)
_MEMBER: Final = re.compile(
    r"^(?:  /\*\*(?P<doc>(?:(?!\*/)[\s\S])*)\*/\n(?:  //[^\n]*\n)*)?(?=  (?P<head>[\w\[][^\n]*))",
    re.MULTILINE,
)
_TAG: Final = re.compile(r"^@(?P<tag>param|returns|throws) ", re.MULTILINE)
_HIDDEN: Final = re.compile(r"(private |protected |static \{|#|_|(?:get|set|async|readonly) _)")
_FIELD: Final = re.compile(
    r"(?:declare |override |static )*(?:(?P<get>get )|readonly |(?=\w+(?:\??:| =) ))"
)
_PROPERTY: Final = re.compile(
    r"^    /\*\* (?P<doc>[^\n]*) \*/\n    readonly (?P<name>\w+): (?P<kind>[^\n]+),$", re.MULTILINE
)
"""A parameter of a constructor that is a member."""
_BASE: Final = re.compile(
    r"(?:(?P<how>Omit|Pick|Optional)<)?(?P<name>\w+)(?:<[^<>]*>)?"
    r"(?:(?:, (?P<names>'[^>]*))?>)?(?:, |$)"
)
_WIRE: Final[Mapping[str, str]] = {
    "MessageId": "string",
    "Topic": "string",
    "Timestamp": "number",
    "Seq": "number",
}
"""Types of the wire that the package does not export."""


@dataclass(frozen=True, slots=True)
class Doc:
    """A comment: its description, parameters, result and errors."""

    text: str
    params: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    returns: str = ""
    throws: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(frozen=True, slots=True)
class Declaration:
    """An exported declaration.

    Attributes:
        kind: `class`, `interface`, `type`, `function` or `const`.
        name: Its name.
        doc: Its comment.
        source: Its text from the kind to the end, or to the body of a function.
        file: The file that contains it.
    """

    kind: str
    name: str
    doc: str
    source: str
    file: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a class or an interface: a field with its type, or a method.

    Attributes:
        name: Its name.
        text: The type of a field, or the signature of a method.
        doc: Its comment.
        is_method: It is a method.
        is_optional: It is a field that may be absent.
    """

    name: str
    text: str
    doc: Doc
    is_method: bool
    is_optional: bool = False


def entries() -> dict[str, str]:
    """Return the source file of each entry of the package."""
    exports = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["exports"]
    types: dict[str, str] = {
        name: conditions["import"]["types"]
        for name, conditions in exports.items()
        if name != "./package.json"
    }
    return {
        name: file.removeprefix("./dist/").removesuffix(".d.ts") + ".ts"
        for name, file in types.items()
    }


def exported(file: str) -> list[Declaration]:
    """Return the public declarations that a file exports, its own and those of other files."""
    text = read(file)
    found: dict[str, Declaration] = {}
    for match in _EXPORTS.finditer(text):
        other = str((Path(file).parent / match["file"]).with_suffix(".ts"))
        other = _normal(other)
        if match["names"] is None:
            found |= {each.name: each for each in exported(other)}
            continue
        for name in re.findall(r"(?:type )?(\w+)(?: as \w+)?", match["names"]):
            if name != "type":
                found[name] = _declaration(other, name)
    found |= {each.name: each for each in declared(file).values()}
    local = re.search(r"^export type \{(?P<names>[^}]*)\};", text, re.MULTILINE)
    for name in re.findall(r"\w+", local["names"]) if local else ():
        found[name] = imported(file, name)
    return [each for each in found.values() if "@internal" not in each.doc]


def imported(file: str, name: str) -> Declaration:
    """Return a declaration that a file imports and exports again."""
    pattern = rf"^import (?:type )?\{{[^}}]*\b{name}\b[^}}]*\}} from '([^']+)';"
    match = re.search(pattern, read(file), re.MULTILINE)
    if match is None:
        raise KeyError(f"{file} exports {name} and does not import it")
    return _declaration(_normal(str((Path(file).parent / match[1]).with_suffix(".ts"))), name)


def _declaration(file: str, name: str) -> Declaration:
    known = declared(file)
    if name in known:
        return known[name]
    for each in exported(file):
        if each.name == name:
            return each
    raise KeyError(f"{file} does not declare {name}")


@cache
def declared(file: str) -> dict[str, Declaration]:
    """Return what a file itself declares and exports, by name."""
    text = read(file)
    found: dict[str, Declaration] = {}
    for match in _DECLARED.finditer(text):
        kind, name = match["kind"], match["name"]
        doc = match["doc"] or ""
        # An error is a constant and an interface. Of several signatures, the first is public.
        if name not in found:
            source = text[match.start("kind") : end_of(text, match.start("kind"), kind)]
            found[name] = Declaration(kind, name, doc, source, file)
    return found


def parse_doc(comment: str) -> Doc:
    """Return the parts of a comment.

    Raises:
        ValueError: An error of `@throws` has no name.
    """
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.strip().split("\n")]
    text = "\n".join(lines).strip()
    pieces = _TAG.split(text)
    doc = {"returns": ""}
    params: list[tuple[str, str]] = []
    throws: list[tuple[str, str]] = []
    for tag, content in zip(pieces[1::2], pieces[2::2], strict=True):
        words = " ".join(content.split())
        if tag == "returns":
            doc["returns"] = words
            continue
        name, _, meaning = words.partition(" ")
        (params if tag == "param" else throws).append((name, meaning))
    return Doc(_prose(pieces[0]), params, doc["returns"], throws)


def _prose(text: str) -> str:
    """Return Markdown: paragraphs on their lines, and code samples in a fence."""
    kept: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if all(line.startswith("    ") for line in part.split("\n")) and part.strip():
            code = "\n".join(line[4:] for line in part.split("\n"))
            kept.append(f"```typescript\n{code}\n```")
        elif part.lstrip().startswith("- "):
            kept.append(re.sub(r"\n +(?!-)", " ", part))
        else:
            kept.append(part)
    return "\n\n".join(kept)


def members_of(one: Declaration) -> list[Member]:
    """Return the public members of a class or an interface, those of its bases first."""
    return list({each.name: each for each in (*_inherited(one), *_own(one))}.values())


def _inherited(one: Declaration) -> Iterator[Member]:
    """Return the members of the interfaces that an interface extends, if the package has them."""
    extended = re.match(r"interface \w+(?:<[^{]*>)?\s+extends ([^{]+) \{", one.source)
    if extended is None:
        return
    for base in _BASE.finditer(" ".join(extended[1].split())):
        try:
            found = declared(one.file).get(base["name"]) or imported(one.file, base["name"])
        except KeyError:
            continue
        named = re.findall(r"\w+", base["names"] or "")
        for member in (*_inherited(found), *_own(found)):
            if base["how"] in (None, "Optional") or (member.name in named) == (
                base["how"] == "Pick"
            ):
                is_optional = member.is_optional or base["how"] == "Optional"
                yield replace(member, is_optional=is_optional)


def _own(one: Declaration) -> Iterator[Member]:
    names: set[str] = set()
    begin = one.source.find("{\n")
    for match in _PROPERTY.finditer(one.source, max(begin, 0)) if one.kind == "class" else ():
        yield Member(match["name"], match["kind"], parse_doc(match["doc"]), is_method=False)
    for match in _MEMBER.finditer(one.source, begin) if begin >= 0 else ():
        comment, head = match["doc"] or "", match["head"]
        is_index = head.startswith("[") and not head.startswith("[Symbol")
        is_hidden = is_index or "@internal" in comment or _HIDDEN.match(head)
        if is_hidden or (not comment and one.kind == "class"):
            continue
        start = match.end() + 2
        is_field = _FIELD.match(head)
        if is_field is not None and is_field["get"] is None:
            text = one.source[start + is_field.end() : _statement(one.source, start)]
            name, _, kind = before_value(text).partition(": ")
            kind = kind or text[len(name) :].removeprefix(" = ")
        else:
            text = one.source[start : _body(one.source, start)]
            bare = re.sub(r"^(?:static |async |override |get |\*)*", "", text)
            called = re.match(r"\[?[\w.]+\]?\??", bare)
            if called is None:
                continue
            name = called[0]
            kind = text if is_field is None else bare.partition("(): ")[2]
        is_optional = is_field is not None and name.strip().endswith("?")
        name = name.strip().rstrip("?")
        if name in names or (name.startswith("[") and is_field is not None):
            continue
        names.add(name)
        kind = " ".join(kind.split())
        if is_field is not None:
            if is_optional:
                kind = kind.removesuffix(" | undefined")
            kind = "number" if kind.isdecimal() else _WIRE.get(kind, kind)
        yield Member(name, kind, parse_doc(comment), is_field is None, is_optional)


def end_of(text: str, start: int, kind: str) -> int:
    """Return the end of a declaration, or of the signature of a function."""
    if kind in ("class", "interface"):
        line = text.index("\n", start)
        if text[line - 1] == "}":
            return line
        return text.index("\n}", start) + 2
    if kind == "function":
        return _body(text, start)
    return _statement(text, start)


def _statement(text: str, start: int) -> int:
    """Return the end of a statement: its semicolon outside of brackets."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == ";" and depth == 0:
            return at
    raise ValueError("a statement does not end")


def _body(text: str, start: int) -> int:
    """Return where the body of a function begins, or its overload or signature ends."""
    depth, past = 0, False
    for at in range(start, len(text)):
        letter = text[at]
        if letter in "([{<":
            before = text[start:at].rstrip()
            if letter == "{" and depth == 0 and past and before[-1] not in ":|&,":
                return at
            depth += 1
        elif letter in ")]}" or (letter == ">" and text[at - 1] != "="):
            depth -= 1
            past = past or (letter == ")" and depth == 0)
        elif letter == ";" and depth == 0:
            return at
    raise ValueError("a function has no body")


def before_value(text: str) -> str:
    """Return a declaration without its value."""
    depth = 0
    for at in range(len(text)):
        depth += (text[at] in "([{<") - (
            text[at] in ")]}" or (text[at] == ">" and text[at - 1] != "=")
        )
        if depth == 0 and text.startswith(" = ", at):
            return text[:at]
    return text


@cache
def read(file: str) -> str:
    """Return the text of a source file."""
    return (SOURCES / file).read_text(encoding="utf-8")


def _normal(file: str) -> str:
    parts: list[str] = []
    for part in Path(file).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
