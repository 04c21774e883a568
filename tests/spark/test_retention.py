"""The retention that a stream needs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.retention import main, retention, sustained_rate
from pubsub_server.backplanes import retention as server_retention
from pubsub_server.backplanes.history import MemoryStore
from pubsub_server.backplanes.ids import IdMemory
from pubsub_server.shared.requests import Draft


def test_the_default_of_the_service_carries_65_messages_per_second() -> None:
    assert int(sustained_rate(100)) == 66
    assert sustained_rate(100, outage=8.5) == 10


def test_what_is_kept_covers_the_outage_and_one_batch() -> None:
    need = retention(50, outage=600, reserve=1)
    assert (need.messages, need.seconds) == (30_075, 602)
    assert retention(50, outage=600).messages == 60_150
    assert retention(50, outage=600, topics=3).bytes == 3 * retention(50, outage=600).bytes


@pytest.mark.parametrize("rate", [0.5, 7, 1234.5])
@pytest.mark.parametrize("outage", [0.0, 0.7, 3600])
def test_what_is_kept_carries_the_rate_it_was_asked_for(rate: float, outage: float) -> None:
    need = retention(rate, outage=outage, reserve=1)
    assert sustained_rate(need.messages, outage=outage) >= rate
    if need.messages > 1:
        assert sustained_rate(need.messages - 1, outage=outage) < rate


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate", 0), ("outage", -1), ("reserve", 0.5), ("topics", 0), ("trigger", float("nan"))],
)
def test_the_error_for_an_absurd_value_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        retention(**{"rate": 1, field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("length", [10, 250, 5_000])
def test_a_server_in_memory_retains_every_message_within_the_calculated_bytes(length: int) -> None:
    need = retention(50, outage=1, reserve=1, message_bytes=length)
    logs = server_retention.Retention(server_retention.Keep(need.messages, need.seconds * 1000))
    store = MemoryStore(logs, IdMemory(10, 1_000), max_bytes=need.bytes, max_topics=1)
    topic, sender = "plant.line.sensors.7", ("service", str(uuid4()))
    draft = Draft(topic, "reading.v1", b"1" * length, None, None, None)
    for _ in range(need.messages):
        store.append(draft, sender, 1_700_000_000_000)
    (report,) = store.reports(topic, 1_700_000_000_000, 1)
    assert report.messages == need.messages


def test_the_command_prints_settings_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "50", "--outage", "600", "--topics", "10"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "history_max_messages: 60150",
        "history_max_age: 1203",
        "history_max_bytes: 586MiB",
    ]
    with pytest.raises(SystemExit) as caught:
        main(["--rate", "0"])
    assert caught.value.code == 2
    assert "`rate`" in capsys.readouterr().err
