"""Problems of the source: lost rows, failing batches, bad options."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.spark import FORMAT
from tests.spark.source_lab import BOUND, Batches, Lab, of, pairs, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_first_batch_that_was_not_committed_is_repeated_with_the_same_rows(lab: Lab) -> None:
    options = {"topics": "dev.first.a", "startingOffsets": "latest", "minPollIntervalMs": "20000"}
    lab.server.publish("dev.first.a", 5)
    stop = threading.Event()

    def publish() -> None:
        begin = 5
        while not stop.wait(0.05):
            lab.server.publish("dev.first.a", 1, begin=begin)
            begin += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        failed = Batches(fail=True)
        query = lab.start(failed, options, now=False)
        until(lambda: query.exception() is not None)
    finally:
        stop.set()
        publisher.join()
    again = Batches()
    lab.run(again, **options)
    assert again.rows[0] == failed.rows[-1]
    whole = [message["seq"] for message in lab.server.messages("dev.first.a")]
    assert again.all == of("dev.first.a", whole[whole.index(again.all[0][1]) :])


@pytest.mark.parametrize("log", [False, True], ids=["trimmed", "log lost"])
def test_rows_that_are_gone_fail_the_query_or_are_left_out(lab: Lab, log: bool) -> None:
    name = "dev.lost" if log else "dev.trimmed"
    topic = f"{name}.a"
    options = {"topicsPattern": f"{name}.*", "startingOffsets": "earliest"}
    seen = lab.server.publish(topic, 10)
    got = Batches()
    lab.run(got, **options)
    assert got.all == of(topic, seen)

    lost = lab.server.publish(topic, 5, begin=10)
    lab.server.forget(topic, log=log)
    kept = lab.server.publish(topic, 4, begin=15)
    query = lab.start(got, options)
    with pytest.raises(Exception, match="DataLossError") as caught:
        query.awaitTermination(int(BOUND))
    text = str(caught.value)
    assert topic in text
    assert "failOnDataLoss=false" in text
    if log:
        assert f"restarted at position {kept[0]}" in text
    else:
        assert f"positions {lost[0]} to {lost[-1]} (5 rows)" in text

    got = Batches()
    lab.run(got, **options, failOnDataLoss="false")
    assert got.all == of(topic, kept)


def test_a_batch_that_starts_before_the_retained_rows_fails_or_skips_them(lab: Lab) -> None:
    seqs = lab.server.publish("dev.early.a", 10)
    lab.server.forget("dev.early.a")
    kept = lab.server.publish("dev.early.a", 3, begin=10)
    options = {
        "topics": "dev.early.a",
        "startingOffsets": json.dumps({"dev.early.a": seqs[0]}),
    }
    with pytest.raises(Exception, match=f"positions {seqs[1]} to {seqs[-1]}"):
        lab.read(**options)
    assert pairs(lab.read(**options, failOnDataLoss="false")) == of("dev.early.a", kept)


def test_planning_refuses_what_cannot_work_and_shows_no_secret(lab: Lab, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("s3cretTOKEN")
    cases: list[tuple[dict[str, str], str]] = [
        ({"topics": "dev.no.a", "startingOffset": "earliest"}, "startingOffsets"),
        ({"topics": "dev.no.a", "token": "s3cretTOKEN"}, "tokenFile"),
        ({"topics": "dev.no.*"}, "topicsPattern"),
        ({}, "topics"),
        ({"topics": "org.other.a"}, "org.other.a"),
        ({"topics": "dev.no.a", "tokenFile": str(wrong), "maxRetries": "0"}, "token"),
        ({"topics": "dev.no.a", "endingOffsets": '{"dev.no.a": 7}'}, "dev.no.a"),
    ]
    for options, words in cases:
        with pytest.raises(Exception, match=words) as caught:
            lab.read(**options)
        assert "s3cretTOKEN" not in str(caught.value)
    for options, words in [
        ({"topics": "dev.no.a", "endingOffsets": "latest"}, "endingOffsets"),
        ({"topics": "dev.no.a", "tokenFile": str(wrong), "maxRetries": "0"}, "token"),
    ]:
        query = lab.start(Batches(), options)
        with pytest.raises(Exception, match=words) as caught:
            query.awaitTermination(int(BOUND))
        assert "s3cretTOKEN" not in str(caught.value)
    reader = lab.spark.read.format(FORMAT).schema("topic STRING")
    other = reader.options(**lab.options(topics="dev.no.a")).load()
    with pytest.raises(Exception, match="columns"):
        other.collect()
