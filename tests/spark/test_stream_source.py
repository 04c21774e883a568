"""The answers to each call of Spark's planner, in Spark versions with and without limits."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark import source
from hanzoai.pubsub.spark.fetch import Page
from hanzoai.pubsub.spark.losses import DataLossError
from hanzoai.pubsub.spark.planning import Offset, Standing
from hanzoai.pubsub.spark.source import BatchSource, Ranges, StreamSource, planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.spark import PubSubConfig

TEXT = StringType()
COLUMNS = StructType(
    [
        *(StructField(name, TEXT) for name in ("topic", "id", "type", "data", "sender")),
        StructField("timestamp", TimestampType()),
        StructField("ttl", IntegerType()),
        StructField("seq", LongType()),
    ]
)


@dataclass
class Service:
    """Replaces the server and the clock."""

    standings: dict[str, Standing] = field(default_factory=dict)
    news: list[dict[str, Standing]] = field(default_factory=list)
    """The answers to successive waiting requests, with the positions of the topics."""
    holds: bool = True
    now: float = 1_000.0
    asked: list[float] = field(default_factory=list)
    """The maximum wait of each request."""

    def positions(
        self,
        topics: Sequence[str],
        *,
        at: int | None = None,
        after: dict[str, int] | None = None,
        wait: float = 0.0,
    ) -> dict[str, Standing]:
        self.asked.append(wait)
        if wait:
            assert after is not None
            if self.news:
                self.standings.update(self.news.pop(0))
            elif self.holds:
                self.now += wait
        return dict(self.standings)

    def page(self, topic: str, after: int, limit: int) -> Page:
        return Page([], restarted=True)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()

    def fetcher_of(config: PubSubConfig) -> Service:
        return found

    monkeypatch.setattr(source, "fetcher_of", fetcher_of)
    clock = SimpleNamespace(monotonic=lambda: found.now, sleep=found.sleep)
    monkeypatch.setattr(source, "time", clock)
    return found


def options(**more: str) -> dict[str, str]:
    return {"url": "http://127.0.0.1:1", "topicsPattern": "a.*", **more}


def stream(**more: str) -> StreamSource:
    return StreamSource(options(**more), COLUMNS)


def rows(reader: StreamSource, start: Any, end: Any) -> list[tuple[str, int, int]]:
    parts = reader.partitions(start, end)
    assert all(isinstance(part, Ranges) for part in parts)
    return [tuple(each) for part in parts for each in part.ranges]  # type: ignore[attr-defined]


def offset(read: dict[str, int]) -> dict[str, object]:
    return Offset(read).as_json()


LIMIT = SimpleNamespace()
"""The relevant part of `ReadAllAvailable`."""


def test_a_query_starts_at_the_newest_position_and_waits_for_new_rows(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    service.news = [{"a.x": Standing(1, 12)}]
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, LIMIT)
    assert rows(reader, start, end) == [("a.x", 9, 12)]
    assert reader.reportLatestOffset() == offset({"a.x": 12})


def test_an_idle_query_asks_once_for_each_interval(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    for service.holds in (True, False):
        reader = stream()
        start = reader.initialOffset()
        reader.latestOffset(start, LIMIT)
        begin, asked = service.now, len(service.asked)
        for _ in range(10):
            assert reader.latestOffset(start, LIMIT) == start
        assert len(service.asked) - asked <= 2 * (service.now - begin) + 1


def test_what_is_known_to_wait_is_read_without_asking_again(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 30)}
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], limit))
    assert len(service.asked) == 2
    assert rows(reader, offsets[2], offsets[3]) == [("a.x", 20, 30)]
    service.now += 60
    service.standings = {"a.x": Standing(1, 31)}
    later = reader.latestOffset(offsets[2], limit)
    assert rows(reader, offsets[2], later) == [("a.x", 20, 30)]
    assert reader.reportLatestOffset() == offset({"a.x": 31})


def test_available_now_ends_at_the_positions_at_its_start(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    reader = stream(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    service.standings = {"a.x": Standing(1, 50), "a.y": Standing(1, 5)}
    start = reader.initialOffset()
    end = reader.latestOffset(start, LIMIT)
    assert ("a.x", 0, 9) in rows(reader, start, end)
    begin = service.now
    assert reader.latestOffset(end, LIMIT) == end
    assert service.now == begin


def test_without_arguments_a_batch_starts_at_the_end_of_the_previous_one(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    reader = stream(startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert rows(reader, start, end) == [("a.x", 0, 9)]
    service.news = [{"a.y": Standing(4, 6)}]
    following = reader.latestOffset()
    assert rows(reader, end, following) == [("a.y", 3, 6)]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_without_arguments_the_batch_after_the_first_one_reads_only_newer_rows(
    service: Service, start: str
) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    reader = stream(startingOffsets=start)
    # Spark before 4.2 requests the end of the first batch before its start.
    end = reader.latestOffset()
    reader.initialOffset()
    assert rows(reader, end, reader.latestOffset()) == []
    # The rows of the first batch were read before they were trimmed.
    service.news = [{"a.x": Standing(8, 12)}]
    assert rows(reader, end, reader.latestOffset()) == [("a.x", 9, 12)]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_without_arguments_rows_after_a_repeated_first_batch_are_read_once(
    service: Service, start: str
) -> None:
    service.standings = {"a.x": Standing(1, 12)}
    reader = stream(startingOffsets=start)
    reader.initialOffset()
    assert rows(reader, offset({"a.x": 9}), reader.latestOffset()) == [("a.x", 9, 12)]


def test_without_arguments_after_a_restart_nothing_is_read_again(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9), "a.none": Standing(1, 0)}
    reader = stream()
    end = reader.latestOffset()
    assert end == offset({"a.x": 9})
    assert rows(reader, {"a.x": 7}, end) == [("a.x", 7, 9)]


LATER = 10**15
"""How many positions later another log starts: they contain the time in microseconds."""


def test_without_arguments_a_log_that_started_again_is_a_loss_of_the_first_batch(
    service: Service,
) -> None:
    service.standings = {"a.x": Standing(LATER + 1, LATER + 9)}
    start = offset({"a.x": 7})
    reader = stream()
    end = reader.latestOffset()
    with pytest.raises(DataLossError, match=f"restarted at position {LATER + 1}"):
        reader.partitions(start, end)
    reader = stream(failOnDataLoss="false")
    end = reader.latestOffset()
    assert rows(reader, start, end) == [("a.x", LATER, LATER + 9)]
    service.news = [{"a.x": Standing(LATER + 1, LATER + 12)}]
    assert rows(reader, end, reader.latestOffset()) == [("a.x", LATER + 9, LATER + 12)]


@pytest.mark.parametrize("tolerated", [False, True])
def test_without_arguments_a_log_that_starts_after_the_first_batch_is_a_loss(
    service: Service, tolerated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(failOnDataLoss=str(not tolerated).lower())
    service.standings = {"a.y": Standing(1, 2)}
    end = reader.latestOffset()
    assert rows(reader, offset({"a.x": 7, "a.y": 2}), end) == []
    end = reader.latestOffset()
    service.news = [{"a.x": Standing(LATER + 1, LATER + 9)}]
    if not tolerated:
        with pytest.raises(DataLossError, match=f"restarted at position {LATER + 1}"):
            reader.latestOffset()
        return
    following = reader.latestOffset()
    assert "The log of 'a.x' was lost" in caplog.text
    assert rows(reader, end, following) == [("a.x", LATER, LATER + 9)]


def test_without_arguments_a_log_that_is_back_goes_on_at_its_position(service: Service) -> None:
    reader = stream()
    end = reader.latestOffset()
    assert rows(reader, offset({"a.x": 7}), end) == []
    end = reader.latestOffset()
    service.news = [{"a.x": Standing(1, 9)}]
    assert rows(reader, end, reader.latestOffset()) == [("a.x", 7, 9)]


def test_without_arguments_a_topic_that_is_gone_for_long_is_no_loss_when_it_returns(
    service: Service,
) -> None:
    reader = stream(topicForgetMs="60000")
    end = reader.latestOffset()
    assert rows(reader, offset({"a.x": 7}), end) == []
    kept = reader.latestOffset()
    assert reader.latestOffset() == kept
    service.now += 61
    end = reader.latestOffset()
    assert end == offset({})
    service.news = [{"a.x": Standing(LATER + 1, LATER + 9)}]
    assert rows(reader, end, reader.latestOffset()) == [("a.x", LATER, LATER + 9)]


def test_a_repeated_batch_in_which_a_topic_leaves_the_offsets_is_no_loss(service: Service) -> None:
    reader = stream()
    left = offset({})
    assert rows(reader, offset({"a.old": 4}), left) == []
    service.standings = {"a.old": Standing(LATER + 1, LATER + 9)}
    end = reader.latestOffset(left, LIMIT)
    assert rows(reader, left, end) == [("a.old", LATER, LATER + 9)]


def test_without_arguments_the_position_of_a_log_that_is_gone_is_kept_over_two_restarts(
    service: Service,
) -> None:
    start = offset({"a.x": 7})
    reader = stream()
    first = reader.latestOffset()
    assert rows(reader, start, first) == []
    second = reader.latestOffset()
    assert rows(reader, first, second) == []
    assert reader.latestOffset() == second
    service.standings = {"a.x": Standing(LATER + 1, LATER + 9)}
    reader = stream()
    end = reader.latestOffset()
    with pytest.raises(DataLossError, match=f"restarted at position {LATER + 1}"):
        reader.partitions(second, end)


def test_a_repeated_batch_of_a_log_that_is_gone_is_a_loss(service: Service) -> None:
    start, end = offset({"a.x": 7}), offset({"a.x": LATER})
    with pytest.raises(DataLossError) as caught:
        stream().partitions(start, end)
    assert (caught.value.first, caught.value.last) == (8, LATER)
    assert rows(stream(failOnDataLoss="false"), start, end) == []


def test_a_topic_that_is_gone_for_long_leaves_the_offsets(service: Service) -> None:
    service.standings = {"a.x": Standing(1, 9)}
    reader = stream(topicForgetMs="60000")
    start = offset({"a.x": 9, "a.old": 4})
    assert reader.latestOffset(start, LIMIT) == start
    service.now += 61
    assert reader.latestOffset(start, LIMIT) == offset({"a.x": 9})


def test_a_topic_that_returns_after_it_left_the_offsets_begins_at_its_first_row(
    service: Service,
) -> None:
    reader = stream(topicForgetMs="60000")
    start = offset({"a.old": 4})
    assert reader.latestOffset(start, LIMIT) == start
    service.now += 61
    left = reader.latestOffset(start, LIMIT)
    assert left == offset({})
    assert rows(reader, start, left) == []
    service.standings = {"a.old": Standing(50, 52)}
    end = reader.latestOffset(left, LIMIT)
    assert rows(reader, left, end) == [("a.old", 49, 52)]


def test_a_loss_reports_whether_the_log_started_again(service: Service) -> None:
    service.standings = {"a.x": Standing(50, 60)}
    with pytest.raises(DataLossError, match="restarted at position 50") as caught:
        stream().latestOffset({"a.x": 10}, LIMIT)
    assert (caught.value.first, caught.value.last) == (11, 49)
    assert "Redis" in caught.value.remedy
    reader = stream(failOnDataLoss="false")
    end = reader.latestOffset({"a.x": 10}, LIMIT)
    assert rows(reader, {"a.x": 10}, end) == [("a.x", 49, 60)]


def test_an_error_travels_with_all_that_it_says(service: Service) -> None:
    service.standings = {"a.x": Standing(50, 60)}
    with pytest.raises(DataLossError) as caught:
        stream().latestOffset({"a.x": 10}, LIMIT)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.first, copy.topic) == (str(caught.value), 11, "a.x")


def test_the_first_call_reports_invalid_options(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [
        stream(endingOffsets="latest"),
        stream(maxOffsetsPerTrigger="none"),
        StreamSource(options(), StructType([StructField("topic", TEXT)])),
    ]
    monkeypatch.setattr(source, "_LIMITS", None)
    wrong.append(stream(maxOffsetsPerTrigger="5"))
    for reader in wrong:
        for call in (reader.initialOffset, reader.getDefaultReadLimit, reader.latestOffset):
            with pytest.raises(InvalidOption):
                call()


def test_a_batch_without_rows_has_no_tasks_and_spark_s_own_task_reads_nothing(
    service: Service,
) -> None:
    reader = BatchSource(planned(options(), COLUMNS))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_that_starts_at_a_time_ends_at_the_given_position(service: Service) -> None:
    service.standings = {"a.x": Standing(5, 20, 11), "a.none": Standing(1, 0, 1)}
    reader = BatchSource(
        planned(options(startingTimestamp="1771840800000", endingOffsets='{"a.x": 15}'), COLUMNS)
    )
    (part,) = reader.partitions()
    assert part.ranges == (("a.x", 10, 15),)  # type: ignore[attr-defined]
