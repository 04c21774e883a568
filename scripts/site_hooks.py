"""Hooks of the site: the first page is the README, with links to the pages of the site.

Put `<!-- tab: NAME -->` before each block and `<!-- end of tabs -->` after the last one to show the
blocks in tabs on the site. A code host shows them one below the other.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

README = Path(__file__).parent.parent / "README.md"
END_OF_TABS = "<!-- end of tabs -->"
TAB = re.compile(r"<!-- tab: (.+?) -->")
TABS = re.compile(rf"<!-- tab: .*?{END_OF_TABS}", re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def turn_link(link: re.Match[str]) -> str:
    """Point a link to docs/ to its page; replace a link to another file by its text."""
    text, target = link["text"], link["target"]
    if target.startswith(("https:", "http:", "mailto:", "#")):
        return link[0]
    page = target.removeprefix("docs/")
    kept = page != target and (".md" in page or page.startswith("assets/"))
    return f"[{text}]({page})" if kept else text


def make_tabs(markdown: str) -> str:
    """Convert marked blocks to tabs in the site's Markdown."""

    def tabs(group: re.Match[str]) -> str:
        parts = TAB.split(group[0].removesuffix(END_OF_TABS))[1:]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        shown = (f'=== "{name}"\n\n{indent(body.strip(), "    ")}\n' for name, body in pairs)
        return "\n".join(shown)

    return TABS.sub(tabs, markdown)


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Use the README as the first page, and convert the tabs of every page."""
    if page.file.src_uri != "index.md":
        return make_tabs(markdown)
    return LINK.sub(turn_link, README.read_text(encoding="utf-8"))
