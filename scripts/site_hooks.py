"""Hooks of the site: the first page is the README, with its links turned to the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

README = Path(__file__).parent.parent / "README.md"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def turn_link(link: re.Match[str]) -> str:
    """Point a link into docs/ to its page; of one to another file here leave only the text."""
    text, target = link["text"], link["target"]
    if target.startswith(("https:", "http:", "mailto:", "#")):
        return link[0]
    page = target.removeprefix("docs/")
    kept = page != target and (".md" in page or page.startswith("assets/"))
    return f"[{text}]({page})" if kept else text


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Give the first page the README's text."""
    if page.file.src_uri != "index.md":
        return markdown
    return LINK.sub(turn_link, README.read_text(encoding="utf-8"))
