"""`/metrics` of several workers: the worker that is asked queries the others and adds up.

Each worker answers on a socket in a folder of the supervisor that only its user can access. The
supervisor asks there as well, to detect a worker whose event loop is stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pubsub_server.instruments import LEAST
from pubsub_server.observe.metrics import PREFIX
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.workers.counted import Counted, own_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from prometheus_client.samples import Sample

    from pubsub_server.workers.counted import Key

ANSWER_WITHIN: Final = 1.0
"""Seconds after which a worker that does not answer is left out."""
ASKED_AGAIN: Final = 0.05
"""Seconds between two attempts to ask a worker that accepts no connection."""
LARGEST: Final = 4 * 1_048_576


def socket_of(folder: Path, number: int) -> Path:
    """Where this worker answers."""
    return folder / f"{number}.sock"


async def answers(folder: Path, number: int, within: float) -> bool:
    """Whether this worker answers within this many seconds, or is about to start or to end."""
    try:
        async with asyncio.timeout(within):
            while await _backlog_is_full(socket_of(folder, number)):  # noqa: ASYNC110
                await asyncio.sleep(ASKED_AGAIN)
    except TimeoutError:
        return False
    return True


async def _backlog_is_full(path: Path) -> bool:
    """Ask a worker, and return whether so many others wait for it that it cannot be asked."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            await reader.read(1)
        finally:
            writer.close()
    except OSError as error:
        # uvloop reports the first, asyncio at the read the second.
        return error.errno in {errno.EAGAIN, errno.EINVAL}
    return False


class WorkerPool:
    """One worker among the others.

    Args:
        folder: The shared folder of the supervisor.
        number: Number of this worker.
        own: Reads the metrics of this worker.
    """

    def __init__(self, folder: Path, number: int, own: Callable[[], tuple[bytes, str]]) -> None:
        self._folder = folder
        self._path = socket_of(folder, number)
        self._own = own
        self._counted = Counted(folder)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start answering the other workers."""
        self._path.unlink(missing_ok=True)
        self._counted.begin(self._path.stem)
        self._server = await asyncio.start_unix_server(self._answer, self._path)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            await stop_accepting(self._server)
            self._path.unlink(missing_ok=True)

    async def exposition(self) -> tuple[bytes, str]:
        """The metrics of all workers as text, and its content type."""
        paths = sorted(self._folder.glob("*.sock"))
        texts = await asyncio.gather(*(self._text(path) for path in paths))
        by_worker = {path.stem: text for path, text in zip(paths, texts, strict=True) if text}
        counted = self._counted
        silent = counted.silent()
        former = [counted.answered(worker, text) for worker, text in by_worker.items()]
        former += [silent[worker] for worker in silent.keys() - by_worker.keys()]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Together(together(by_worker, former)))
        return generate_latest(registry), CONTENT_TYPE_LATEST

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                writer.write(self._own()[0])
                await writer.drain()
        finally:
            writer.close()

    async def _text(self, path: Path) -> str:
        if path == self._path:
            return self._own()[0].decode()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                reader, writer = await asyncio.open_unix_connection(path, limit=LARGEST)
                try:
                    return (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""


def together(texts: dict[str, str], former: Iterable[Mapping[Key, float]] = ()) -> list[Metric]:
    """The metrics of all workers in one.

    Counters are added up, `LEAST` use the minimum, and metrics of a process get a label
    `worker`.

    Args:
        texts: Metrics by worker.
        former: Counts of workers that do not answer, or of previous runs.
    """
    found: dict[str, Metric] = {}
    sums: dict[Key, float] = {}
    for worker, text in texts.items():
        for family in text_string_to_metric_families(text):
            kept = found.setdefault(
                own_name(family), Metric(family.name, family.documentation, family.type)
            )
            for sample in family.samples:
                if not family.name.startswith(PREFIX) or family.name.endswith("_info"):
                    kept.add_sample(sample.name, {**sample.labels, "worker": worker}, sample.value)
                elif not sample.name.endswith("_created"):
                    key = (own_name(family), sample.name, _labels(sample))
                    before = sums.get(key)
                    if before is None:
                        sums[key] = sample.value
                    elif family.name.removeprefix(PREFIX) in LEAST:
                        sums[key] = min(before, sample.value)
                    else:
                        sums[key] = before + sample.value
    for counted in former:
        for key, value in counted.items():
            if key[0] in found:
                sums[key] = sums.get(key, 0) + value
    for (name, sample_name, labels), value in sums.items():
        found[name].add_sample(sample_name, dict(labels), value)
    return list(found.values())


def _labels(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(sample.labels.items()))


class _Together(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
