"""The page of the benchmarks shows the stored results."""

from __future__ import annotations

import json
from typing import Any

from tests.bench.processes import ROOT
from tests.bench.report import BEGIN, END, PAGE, render


def test_the_page_shows_what_the_benchmarks_write_for_the_stored_results() -> None:
    results = ROOT / "tests" / "bench" / "results" / "latest.json"
    stored: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == render(stored).strip()
