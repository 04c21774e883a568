"""The source on a real Spark, from a real server."""

from __future__ import annotations

import json

import pytest

from hanzoai.pubsub.spark import FORMAT
from tests.spark.source_lab import Batches, Lab, of, pairs

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves the closing of its sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


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


def test_a_stream_goes_on_exactly_where_its_checkpoint_is(lab: Lab) -> None:
    a = lab.server.publish("dev.on.a", 40)
    b = lab.server.publish("dev.on.b", 25)
    options = {"topicsPattern": "dev.on.*", "startingOffsets": "earliest"}
    got = Batches()
    lab.run(got, **options)
    assert sorted(got.all) == of("dev.on.a", a) + of("dev.on.b", b)

    more = lab.server.publish("dev.on.a", 10, begin=40)
    late = lab.server.publish("dev.on.late", 7)
    got = Batches()
    lab.run(got, **options, maxOffsetsPerTrigger="6")
    assert sorted(got.all) == of("dev.on.a", more) + of("dev.on.late", late)
    assert [len(batch) for batch in got.rows] == [6, 6, 5]
    assert {topic for topic, _ in got.rows[0]} == {"dev.on.a", "dev.on.late"}

    # The last two batches are repeated with the same rows, although there are newer ones.
    newer = lab.server.publish("dev.on.a", 2, begin=50)
    lab.forget_commits(keep=2)
    again = Batches()
    lab.run(again, **options, maxOffsetsPerTrigger="6")
    assert [sorted(rows) for rows in again.rows[:1]] == [sorted(got.rows[-1])]
    assert again.all[len(got.rows[-1]) :] == of("dev.on.a", newer)
