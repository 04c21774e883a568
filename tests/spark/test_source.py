"""The source on a real Spark with a real server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from hanzoai.pubsub.spark import FORMAT
from hanzoai.pubsub.spark.planning import read_offset
from tests.spark.source_lab import BOUND, Batches, Lab, of, pairs, until

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

POSITIONS = "/v1/positions"


def test_a_batch_reads_what_is_retained_between_two_bounds(lab: Lab) -> None:
    a = lab.server.publish("dev.batch.a", 700, type="kept")
    b = lab.server.publish("dev.batch.b", 3, ttl=600)
    both = of("dev.batch.a", a) + of("dev.batch.b", b)
    rows = lab.read(topicsPattern="dev.batch.*")
    assert pairs(rows) == both
    row = rows[-1]
    assert json.loads(row.data) == {"n": 2}
    assert json.loads(row.sender) == {"type": "service", "id": "spark"}
    assert (row.id, row.type, row.ttl) == ("dev.batch.b-2", "message", 600)
    message = lab.server.messages("dev.batch.b")[-1]
    assert round(row.timestamp.timestamp() * 1000) == message["timestamp"]

    start, end = json.dumps({"dev.batch.a": a[9]}), json.dumps({"dev.batch.a": a[19]})
    assert pairs(lab.read(topics="dev.batch.a", startingOffsets=start, endingOffsets=end)) == of(
        "dev.batch.a", a[10:20]
    )
    known = json.dumps({"dev.batch.a": -1, "dev.batch.b": -2})
    assert pairs(lab.read(topicsPattern="dev.batch.*", startingOffsets=known)) == of(
        "dev.batch.b", b
    )
    later = str(message["timestamp"] + 1)
    assert lab.read(topicsPattern="dev.batch.*", startingTimestamp=later) == []
    assert pairs(lab.read(topicsPattern="dev.batch.*", endingTimestamp=later)) == both
    assert pairs(lab.read(topicsPattern="dev.batch.*", types="kept,other")) == of("dev.batch.a", a)


def test_a_batch_is_cut_into_tasks(lab: Lab) -> None:
    a = lab.server.publish("dev.cut.a", 40)
    frame = lab.spark.read.format(FORMAT).options(**lab.options(topics="dev.cut.a"))
    cut = frame.option("minPartitions", "4").load()
    assert cut.rdd.getNumPartitions() == 4
    assert sorted(row.seq for row in cut.collect()) == a
    assert frame.option("maxRowsPerPartition", "8").load().rdd.getNumPartitions() == 5


def test_a_stream_continues_exactly_at_its_checkpoint(lab: Lab) -> None:
    options = {"topicsPattern": "dev.on.*", "startingOffsets": "earliest"}
    got = Batches()
    lab.run(got, **options)
    assert got.all == []

    a = lab.server.publish("dev.on.a", 40)
    b = lab.server.publish("dev.on.b", 25)
    lab.run(got, **options)
    assert sorted(got.all) == of("dev.on.a", a) + of("dev.on.b", b)

    more = lab.server.publish("dev.on.a", 10, begin=40)
    late = lab.server.publish("dev.on.late", 7)
    got = Batches()
    lab.run(got, **options, maxOffsetsPerTrigger="6")
    assert sorted(got.all) == of("dev.on.a", more) + of("dev.on.late", late)
    assert [len(batch) for batch in got.rows] == [6, 6, 5]
    assert {topic for topic, _ in got.rows[0]} == {"dev.on.a", "dev.on.late"}

    # The last batch is repeated with the same rows, although there are newer ones.
    newer = lab.server.publish("dev.on.a", 2, begin=50)
    lab.forget_commits(newest=1)
    again = Batches()
    lab.run(again, **options, maxOffsetsPerTrigger="6")
    assert [sorted(rows) for rows in again.rows[:1]] == [sorted(got.rows[-1])]
    assert again.all[len(got.rows[-1]) :] == of("dev.on.a", newer)


def test_an_idle_stream_asks_twice_a_second_at_most_and_shows_its_backlog(lab: Lab) -> None:
    old = lab.server.publish("dev.idle.a", 5)
    got = Batches()
    query = lab.start(got, {"topicsPattern": "dev.idle.*"}, now=False)
    # Without new messages, the query keeps polling.
    asked = lab.server.requests(POSITIONS)
    until(lambda: lab.server.requests(POSITIONS) >= asked + 4)
    asked, begin = lab.server.requests(POSITIONS), time.monotonic()
    until(lambda: lab.server.requests(POSITIONS) >= asked + 12)
    # One request at the beginning, and up to two that a pause of a process has delayed.
    assert 2 * (time.monotonic() - begin) + 3 >= 12
    assert got.all == []

    new = lab.server.publish("dev.idle.a", 3, begin=5)
    until(lambda: len(got.all) == 3)
    assert got.all == of("dev.idle.a", new)

    def source(name: str) -> dict[str, int]:
        progress: Any = query.lastProgress
        text = None if progress is None else progress["sources"][0][name]
        found: dict[str, int] = json.loads(text or "{}")
        return found

    until(lambda: source("endOffset").get("dev.idle.a") == new[-1])
    assert read_offset(source("latestOffset")).read == {"dev.idle.a": new[-1]}
    assert old[-1] + 1 == new[0]


def test_rows_whose_ttl_passed_between_others_are_no_loss(lab: Lab) -> None:
    first = lab.server.publish("dev.ttl.a", 2)
    lab.server.publish("dev.ttl.a", 2, begin=2, ttl=1)
    last = lab.server.publish("dev.ttl.a", 2, begin=4)
    until(lambda: len(lab.server.messages("dev.ttl.a")) == 4)
    assert pairs(lab.read(topics="dev.ttl.a")) == of("dev.ttl.a", first + last)


def test_from_source_to_sink_each_message_arrives_once(lab: Lab) -> None:
    lab.server.publish("dev.from.a", 300)
    lab.server.publish("dev.from.b", 200)

    def run() -> None:
        rows = lab.stream(
            topicsPattern="dev.from.*", startingOffsets="earliest", maxOffsetsPerTrigger="200"
        )
        query = (
            rows.selectExpr("'dev.to.a' topic", "type", "data", "concat(topic, ':', seq) id")
            .writeStream.format(FORMAT)
            .options(**lab.options())
            .option("checkpointLocation", str(lab.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(BOUND))

    run()
    # Batches that were published but not committed are published again.
    lab.forget_commits(newest=2)
    lab.server.publish("dev.from.a", 50, begin=300)
    run()
    sent = [
        f"{topic}:{message['seq']}"
        for topic in ("dev.from.a", "dev.from.b")
        for message in lab.server.messages(topic)
    ]
    assert len(sent) == 550
    assert sorted(message["id"] for message in lab.server.messages("dev.to.a")) == sorted(sent)
