"""Counters of all workers, including dead ones, so that their sum never decreases.

The worker that answers for all records the counts of each; a restarted worker continues from there.
A killed worker loses what it counted after the last read, which no reader has seen.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from pubsub_server.observe.metrics import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

KINDS: Final = frozenset({"counter", "histogram"})

Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""A family, a sample of it, and its labels."""


def own_name(family: Metric) -> str:
    """A unique name of a family: a gauge `x` and a counter `x_total` are both called x."""
    return family.name + "_total" if family.type == "counter" else family.name


def counts(text: str) -> dict[Key, float]:
    """Counters and histograms in the text of one worker."""
    return {
        (own_name(family), sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        if family.type in KINDS and family.name.startswith(PREFIX)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


class Counted:
    """Records of all workers, in their shared folder.

    Args:
        folder: The shared folder of the supervisor.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, worker: str) -> None:
        """A worker has restarted: add the counts of its previous run."""
        seen = self._folder / f"{worker}.seen"
        if seen.exists():
            seen.replace(self._folder / f"{worker}.before")

    def answered(self, worker: str, text: str) -> dict[Key, float]:
        """Record the counts of a worker; returns those of its previous runs."""
        before = self._read(f"{worker}.before")
        now = dict(before)
        for key, value in counts(text).items():
            now[key] = now.get(key, 0) + value
        self._write(f"{worker}.seen", now)
        return before

    def silent(self) -> dict[str, dict[Key, float]]:
        """The last known counts of every worker."""
        found: dict[str, dict[Key, float]] = {}
        for kind in ("before", "seen"):
            for path in self._folder.glob(f"*.{kind}"):
                found[path.stem] = self._read(path.name)
        return found

    def _read(self, name: str) -> dict[Key, float]:
        try:
            rows = json.loads((self._folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        return {
            (family, sample, tuple((label, value) for label, value in labels)): number
            for family, sample, labels, number in rows
        }

    def _write(self, name: str, found: Mapping[Key, float]) -> None:
        # Other workers may be reading or writing the file, so replace it as a whole.
        written = self._folder / f"{name}.{secrets.token_hex(8)}"
        try:
            written.write_text(json.dumps([[*key, value] for key, value in found.items()]))
            written.replace(self._folder / name)
        finally:
            # Each failure, for example on a full disk, would leave a file.
            written.unlink(missing_ok=True)
