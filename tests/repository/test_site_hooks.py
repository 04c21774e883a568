"""The hooks of the documentation site: diagrams and pages that work offline."""

from __future__ import annotations

import pytest

from scripts import site_hooks


@pytest.mark.parametrize(
    ("url", "script"),
    [
        ("", "assets/mermaid.tiny.js"),
        ("lifecycle/", "../assets/mermaid.tiny.js"),
        ("operate/run/", "../../assets/mermaid.tiny.js"),
    ],
)
def test_a_page_with_a_diagram_loads_the_library_from_the_site(url: str, script: str) -> None:
    page = '<body><pre class="mermaid"><code>flowchart LR</code></pre></body>'
    assert f'<script src="{script}"></script></body>' in site_hooks.add_diagrams(page, url)


def test_a_page_without_a_diagram_does_not_load_the_library() -> None:
    page = "<body><p>mermaid</p></body>"
    assert site_hooks.add_diagrams(page, "lifecycle/") == page


@pytest.mark.parametrize(
    ("element", "address"),
    [
        ('<script async src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ("<img alt=x src='//cdn.example/a.png'>", "//cdn.example/a.png"),
        ('<link href="https://cdn.example/a.css" rel="stylesheet">', "https://cdn.example/a.css"),
        ("<link rel=preconnect href=http://cdn.example>", "http://cdn.example"),
    ],
)
def test_an_element_that_loads_from_another_host_is_found(element: str, address: str) -> None:
    assert site_hooks.foreign_addresses(f"<p>{element}</p>") == [address]


@pytest.mark.parametrize(
    "element",
    [
        '<script src="../assets/a.js"></script>',
        '<a href="https://example.com/">a link</a>',
        '<link rel="canonical" href="https://example.com/">',
        "<code>&lt;script src=&quot;https://cdn.example/a.js&quot;&gt;</code>",
    ],
)
def test_links_and_files_of_the_site_are_allowed(element: str) -> None:
    assert site_hooks.foreign_addresses(element) == []


def test_code_in_a_table_shows_its_pipes_without_a_backslash() -> None:
    table = "| type |\n|---|\n| `str \\| None`, ``a \\| `b` `` or a \\| b |\n"
    shown = "| type |\n|---|\n| `str | None`, ``a | `b` `` or a \\| b |\n"
    assert site_hooks.show_pipes(table) == shown


def test_a_block_of_code_keeps_its_backslashes() -> None:
    block = "```text\n| `a \\| b` |\n```\n"
    assert site_hooks.show_pipes(block) == block


def test_only_long_code_in_a_table_wraps() -> None:
    short, long = "<td><code>--http-port N</code>", f"<td><code>{'long error ' * 4}</code>"
    html = site_hooks.on_page_content(short + long)
    assert html == short + long.replace("<code>", '<code class="long">')


def test_long_names_in_tables_break_at_their_joints() -> None:
    html = site_hooks.on_page_content(
        "<td><code>history_max_messages</code> of <code>ps.limits</code></td>"
        "<td><code>ConnectionFailed</code></td><p><code>history_max_messages</code></p>"
    )
    assert html == (
        "<td><code>history_<wbr>max_<wbr>messages</code> of <code>ps.limits</code></td>"
        "<td><code>Connection<wbr>Failed</code></td><p><code>history_max_messages</code></p>"
    )
