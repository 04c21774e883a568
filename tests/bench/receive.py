"""Receive rate of the Python SDK through `async for`, beside other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.processes import Json, interleave, worker
from tests.bench.receivers import BASELINES

if TYPE_CHECKING:
    from collections.abc import Mapping


def measure(*, quick: bool) -> Json:
    count, rounds = (20_000, 3) if quick else (100_000, 7)

    def run(name: str) -> Mapping[str, float]:
        protocol = BASELINES[name][0]
        with worker("tests.bench.blasters", protocol, str(count)) as blaster:
            port = blaster.read()["port"]
            with worker("tests.bench.receivers", name, str(port), str(count)) as receiver:
                return receiver.read()

    return {
        "messages": count,
        "rounds": rounds,
        "baselines": interleave(list(BASELINES), rounds, run),
    }
