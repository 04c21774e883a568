"""The page of modules names every file that people edit; the architecture names only such files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts import module_lists

if TYPE_CHECKING:
    from pathlib import Path


def test_each_folder_has_a_table_with_the_first_line_of_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_lists, "ROOT", tmp_path)
    (tmp_path / "sdk" / "wire" / "generated").mkdir(parents=True)
    for path, text in {
        "one.py": '"""Reads `a | b`.\n\nMore.\n"""\n',
        "__init__.py": "",
        "wire/__init__.py": '"""The wire."""\n',
        "wire/two.ts": "/**\n * Writes it,\n * at once.\n *\n * More.\n */\nexport {};\n",
        "wire/generated/three.py": "",
    }.items():
        (tmp_path / "sdk" / path).write_text(text, encoding="utf-8")
    assert module_lists.lists("sdk").splitlines() == [
        "### `sdk/`",
        "",
        "| file | purpose |",
        "|---|---|",
        r"| `one.py` | Reads `a \| b` |",
        "",
        "### `wire/`",
        "",
        "The wire.",
        "",
        "| file | purpose |",
        "|---|---|",
        "| `two.ts` | Writes it, at once |",
    ]


@pytest.mark.parametrize("name", ["one.py", "two.ts"])
def test_a_file_that_does_not_say_what_it_is_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(module_lists, "ROOT", tmp_path)
    (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=name):
        module_lists.lists(".")


def test_the_path_of_a_message_names_files_that_exist() -> None:
    roots = [module_lists.ROOT / root for root in ("python/hanzoai/pubsub", "js/src")]
    server = module_lists.ROOT / "server-mock/pubsub_server"
    page = (module_lists.ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| \d \| .+ \| (.+) \|$", page, re.MULTILINE)
    assert len(steps) == 9
    for name in [name for step in steps for name in re.findall(r"`([^`]+)`", step)]:
        client = any(any(root.glob(f"{name}.[pt][sy]")) for root in roots)
        assert client or (server / name).exists(), name
