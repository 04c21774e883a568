"""`python -m scripts.coverage`: the counts of V8 lead to the sources of this repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts.coverage import Module, name_sources_by_path, table

if TYPE_CHECKING:
    from pathlib import Path


def test_sources_that_v8_names_by_a_url_are_named_by_their_path(tmp_path: Path) -> None:
    sources = ["file:///a/with%20space.ts", "../b.ts", "/c.ts"]
    cache = {
        "file:///bundle.js": {"data": {"sources": sources}},
        "file:///plain.js": {"data": None},
    }
    file = tmp_path / "coverage-1.json"
    file.write_text(json.dumps({"result": [], "source-map-cache": cache}), encoding="utf-8")
    (tmp_path / "coverage-2.json").write_text('{"result": []}', encoding="utf-8")
    name_sources_by_path(tmp_path)
    named = json.loads(file.read_text(encoding="utf-8"))["source-map-cache"]["file:///bundle.js"]
    assert named["data"]["sources"] == ["/a/with space.ts", "../b.ts", "/c.ts"]


def test_the_table_lists_the_ten_least_covered_modules_and_no_tiny_ones() -> None:
    modules = [Module(f"js/src/{n}.ts", 100, n) for n in range(12)]
    text = table([("TypeScript", [*modules, Module("js/src/tiny.ts", 10, 10)])])
    assert "| TypeScript, `js/` | 1,210 | 93.7 % |" in text
    listed = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert listed == [f"js/src/{n}.ts" for n in range(11, 1, -1)]
