"""Reads a page of documentation: its fenced blocks, its comments, its links, its anchors.

A comment directly before a fence controls how the block runs:

    <!-- not run: REASON -->   don't run it
    <!-- until: N lines -->    stop it when it has printed N lines
    <!-- until: ready -->      stop it when it waits for more input
    <!-- background -->        run it next to the following blocks; it must print something
    <!-- raises: NAME -->      it ends with this exception
    <!-- status: N -->         the response to the request has this status

A comment that begins with `prelude` contains Python that runs before the blocks of the page. On a
page without one, each Python block is a separate program, exactly as a reader pastes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PACKAGE_PAGE: Final = ROOT / "python" / "README.md"
"""Pages that package indexes show; they must not link to other files of the repository."""

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
        page: The page that contains it.
        line: Line of its fence, from 1.
        language: The language after the fence.
        text: The content, without indentation.
        title: Name of the file that it shows, if any.
        directive: Name of the comment before it, or an empty string.
        value: Value of this comment.
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
        """Page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page."""
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
    """Return the Python that runs before the blocks of a page."""
    return "\n".join(_PRELUDE.findall(page.read_text(encoding="utf-8")))


WHOLE: Final = (*(page for page in PAGES if not prelude(page)), PACKAGE_PAGE)
"""Pages whose Python blocks are whole programs."""


def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    return _LINK.findall(_CODE.sub("", _ANY_FENCE.sub("", page.read_text(encoding="utf-8"))))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a link to this page may use after `#`."""
    text = _ANY_FENCE.sub("", page.read_text(encoding="utf-8"))
    return {explicit or _slug(title) for title, explicit in _HEADING.findall(text)}


def _slug(title: str) -> str:
    """Return the anchor of a heading, like the site creates it."""
    bare = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", bare)
