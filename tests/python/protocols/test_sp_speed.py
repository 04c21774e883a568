"""The causes of the speed of SP sockets; `make bench` measures the speed itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hanzoai.pubsub.sp import PubSocket, SubSocket
from hanzoai.pubsub.sp.pipe import Pipe
from tests.python.protocols.sp_peers import url

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "latest.json"


@pytest.fixture(scope="module")
def measured() -> Any:
    return json.loads(RESULTS.read_text(encoding="utf-8"))["sp"]


@pytest.mark.statement("N-10")
async def test_all_peers_of_one_kind_are_sent_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def send(_: Pipe, data: bytes) -> None:
        sent.append(data)

    monkeypatch.setattr(Pipe, "send", send)
    async with PubSocket() as pub, SubSocket() as one, SubSocket() as two, SubSocket() as three:
        for sub in (one, two):
            await sub.dial(await pub.listen(url("ipc", tmp_path)))
        await three.dial(await pub.listen(url("tcp", tmp_path)))
        await pub.wait_for_peers(3, timeout=10)
        pub.send(b"x")
    assert len(sent) == 3
    assert len({id(data) for data in sent}) == 2


@pytest.mark.statement("N-09", "N-34", "N-35")
def test_the_kept_measurement_of_fan_out_meets_its_targets(measured: Any) -> None:
    elapsed = {
        point["subscribers"]: point["elapsed_us"]
        for point in measured["fanout"]
        if point["who"] == "sdk"
    }
    assert elapsed[10] < 100
    assert elapsed[100] < 1000
    assert all(time / count < 10 for count, time in elapsed.items())


@pytest.mark.statement("N-36", "N-37")
def test_the_kept_measurement_of_receiving_meets_its_targets(measured: Any) -> None:
    assert measured["received"]["sdk"] > 100_000
    assert measured["received"]["sdk"] > 2 * measured["received"]["nng"]
    assert measured["prefixes"]["1000"] < 1000
