"""`make check-docs-wheels` copies every module that the runner of the pages imports."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.check_docs_wheels import COPIED, selection

ROOT = Path(__file__).parents[2]


def test_every_module_of_the_tests_that_the_runner_imports_is_copied() -> None:
    copied = [ROOT / name for name in COPIED]
    waiting = [ROOT / "tests/docs/test_docs.py"]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        assert any(path.is_relative_to(each) for each in copied), path.relative_to(ROOT)
        waiting += _imported(path)
    assert ROOT / "tests/docs/page.py" in seen


def test_words_select_the_pages_that_contain_any_of_them() -> None:
    assert selection(["chat", "spark"]) == "programs_of_a_page and (chat or spark)"
    assert selection([]) == "programs_of_a_page"


def _imported(path: Path) -> list[Path]:
    """The files of the modules below `tests` that a file imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")]
    return [file for file in files if file.exists()]
