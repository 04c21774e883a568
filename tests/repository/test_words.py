"""The check of banned phrases finds them in prose, and only there."""

from __future__ import annotations

import pytest

from scripts import check_words
from scripts.check_words import Rules, check, files, findings, load

RULES = load(
    "banned:\n"
    "  - { find: '\\bwhoever\\b', use: any client that }\n"
    "  - { find: '\\bin place of\\b', use: instead of }\n"
)


def found(name: str, text: str) -> list[tuple[int, str]]:
    return [(each.line, each.text) for each in findings(name, text, RULES.phrases)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "One\n\nWhoever reads\n", [(3, "Whoever")]),
        ("a.md", "It comes in\nplace of it\n", [(1, "in place of")]),
        ("a.md", "Call `whoever()` now\n", []),
        ("a.py", "whoever = 1\n", []),
        ("a.py", "x = 1  # whoever\n", [(1, "whoever")]),
        ("a.py", 'def f():\n    """Of\n    whoever.\n    """\n', [(3, "whoever")]),
        ("a.ts", "const whoever = 1;\n// whoever\n", [(2, "whoever")]),
        ("a.ts", "fail(`in place of ${x}`);\n", [(1, "in place of")]),
        ("a.ts", "// Call `whoever` now\n", []),
        ("a.ts", 'fail("in place of x");\n', [(1, "in place of")]),
        ("a.yaml", "meaning: in place of\n", [(1, "in place of")]),
    ],
)
def test_a_phrase_is_found_in_prose_and_not_in_code(
    name: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert found(name, text) == expected


def test_an_exempt_file_passes_until_it_is_clean(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "old").mkdir()
    (root / "old" / "a.md").write_text("whoever\n")
    (root / "b.md").write_text("whoever\n")
    (root / "clean.md").write_text("a client\n")
    monkeypatch.setattr(check_words, "ROOT", root)
    rules = Rules(RULES.phrases, ("old/", "clean.md"))
    bad, stale = check(["old/a.md", "b.md", "clean.md"], rules)
    assert [each.path for each in bad] == ["b.md"]
    assert stale == ["clean.md"]


def test_the_files_of_the_repository_are_read_and_generated_ones_are_not() -> None:
    named = files()
    assert {"README.md", "docs/cli.md", "spec/errors.yaml"} <= set(named)
    assert not [each for each in named if "generated" in each]
