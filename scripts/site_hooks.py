"""Hooks of the site: its first page is the README, and no page loads anything from another host.

Put `<!-- tab: NAME -->` before each block and `<!-- end of tabs -->` after the last one to show the
blocks in tabs on the site. A code host shows them one below the other.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

README = Path(__file__).parent.parent / "README.md"
END_OF_TABS = "<!-- end of tabs -->"
TAB = re.compile(r"<!-- tab: (.+?) -->")
TABS = re.compile(rf"<!-- tab: .*?{END_OF_TABS}", re.DOTALL)
FENCE_OR_ROW = re.compile(r"^ *```.*?^ *```$|^ *(?P<row>\|[^\n]*)$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
DIAGRAMS = Path(__file__).parent / "diagrams/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
"""Draws the diagrams; without it, the theme loads the same library from another host."""
DIAGRAM = '<pre class="mermaid">'
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc=[\"']?(?P<source>(?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect))"
    r"[^>]*?\bhref=[\"']?(?P<link>(?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
LONG = re.compile(r"<td><code>(?=[^<]{40})")
"""Code at the start of a cell that is too long for one line, such as the text of an error."""
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CELL_CODE = re.compile(r"(?<=<code>)[\w.]{12,}(?=</code>)")
"""A name in the code of a cell, so long that it needs most of the width of a phone."""
JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[_.])(?=\w)")
"""Where a name may break: after an underscore or a dot, and between two words."""
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


def show_pipes(markdown: str) -> str:
    r"""Write `\|` in the code of a table as `|`.

    A code host needs the backslash. The site shows it, because it splits no cell within code.
    """

    def row(found: re.Match[str]) -> str:
        if not found["row"]:
            return found[0]
        return CODE.sub(lambda code: code[0].replace(r"\|", "|"), found[0])

    return FENCE_OR_ROW.sub(row, markdown)


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Use the README as the first page, and convert the tabs and tables of every page."""
    if page.file.src_uri != "index.md":
        return make_tabs(show_pipes(markdown))
    return LINK.sub(turn_link, show_pipes(README.read_text(encoding="utf-8")))


def on_page_content(html: str, **_: object) -> str:
    """Let long code in tables wrap, and long names break at their joints on a narrow screen."""

    def cell(found: re.Match[str]) -> str:
        return CELL_CODE.sub(lambda name: JOINT.sub("<wbr>", name[0]), found[0])

    return LONG.sub('<td><code class="long">', CELL.sub(cell, html))


def add_diagrams(html: str, url: str) -> str:
    """Load the library of the diagrams on a page that has one.

    Args:
        html: The page.
        url: Its address, relative to that of the site.
    """
    if DIAGRAM not in html:
        return html
    script = f'<script src="{"../" * url.count("/")}assets/{DIAGRAMS.name}"></script>'
    return html.replace("</body>", f"{script}</body>")


def foreign_addresses(html: str) -> list[str]:
    """Return the addresses on other hosts that a browser loads with the page."""
    return [found["source"] or found["link"] for found in LOADED.finditer(html)]


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Add the diagrams; stop the build at a page that does not work offline."""
    # Only the setup of the site installs MkDocs.
    from mkdocs.exceptions import PluginError

    if found := foreign_addresses(output):
        raise PluginError(
            f"{page.file.src_uri} loads {', '.join(found)}; put the file into docs/assets/"
        )
    return add_diagrams(output, page.url)


def on_post_build(*, config: MkDocsConfig, **_: object) -> None:
    """Copy the library of the diagrams into the site."""
    from mkdocs.exceptions import PluginError

    try:
        shutil.copy(DIAGRAMS, Path(config.site_dir) / "assets")
    except FileNotFoundError:
        raise PluginError(f"{DIAGRAMS} is missing; run `make docs`") from None
