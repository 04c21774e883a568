"""Reads a page of documentation: its fenced blocks, its comments, its links, its anchors.

A comment right before a fence says how the block is run:

    <!-- not run: REASON -->   it is not
    <!-- until: N lines -->    it is ended when it has printed so many
    <!-- until: ready -->      it is ended when it waits for more
    <!-- background -->        it runs beside the blocks that follow, and has to print something
    <!-- raises: NAME -->      it ends with this exception
    <!-- status: N -->         the answer to the request has this status

A comment that begins with `prelude` holds Python that runs before the blocks of the page. On a page
without one, each block of Python is a program of its own, as a reader pastes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PACKAGE_PAGE: Final = ROOT / "python" / "README.md"
"""What a package index shows: it links to no other file of the repository."""

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_ANY_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE: Final = re.compile(
    r"<!-- (?P<name>not run|until|background|raises|status)(?:: (?P<value>[^\n]*?))? -->\s*\Z"
)
_PRELUDE: Final = re.compile(r"<!-- prelude\n(.*?)-->", re.DOTALL)
_TITLE: Final = re.compile(r'title="([^"]+)"')
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+?)(?: \{ *#([\w-]+) *\})?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        page: Where it is.
        line: Line of its fence, from 1.
        language: What stands behind the fence.
        text: What is in it, without its indentation.
        title: Name of the file that it shows, if any.
        directive: Name of the comment before it, or the empty string.
        value: What that comment says.
    """

    page: Path
    line: int
    language: str
    text: str
    title: str | None
    directive: str
    value: str

    @property
    def place(self) -> str:
        """Page and line, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        before = _DIRECTIVE.search(text, 0, match.start())
        title = _TITLE.search(match["rest"])
        indent = len(match["indent"])
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                match["language"],
                "".join(line[indent:] for line in match["text"].splitlines(keepends=True)),
                title[1] if title else None,
                before["name"] if before else "",
                (before["value"] or "") if before else "",
            )
        )
    return found


def prelude(page: Path) -> str:
    """The Python that runs before the blocks of a page."""
    return "\n".join(_PRELUDE.findall(page.read_text(encoding="utf-8")))


WHOLE: Final = (*(page for page in PAGES if not prelude(page)), PACKAGE_PAGE)
"""Pages whose blocks of Python are whole programs."""


def links(page: Path) -> list[str]:
    """Targets of the links and pictures of a page."""
    return _LINK.findall(_CODE.sub("", _ANY_FENCE.sub("", page.read_text(encoding="utf-8"))))


def anchors(page: Path) -> set[str]:
    """What a link to this page may name behind `#`."""
    text = _ANY_FENCE.sub("", page.read_text(encoding="utf-8"))
    return {explicit or _slug(title) for title, explicit in _HEADING.findall(text)}


def _slug(title: str) -> str:
    """As the site makes the anchor of a heading."""
    bare = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", bare)
