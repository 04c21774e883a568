"""The page of the benchmarks shows the stored results."""

from __future__ import annotations

import json
from typing import Any

from tests.bench.answers import answers
from tests.bench.processes import ROOT
from tests.bench.report import ANSWERS, BEGIN, END, PAGE, render


def test_the_page_shows_what_the_benchmarks_write_for_the_stored_results() -> None:
    results = ROOT / "tests" / "bench" / "results" / "latest.json"
    stored: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for (begin, end), written in (((BEGIN, END), render(stored)), (ANSWERS, answers(stored))):
        shown = page.partition(begin)[2].partition(end)[0]
        assert shown.strip() == written.strip()
