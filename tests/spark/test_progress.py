"""The progress of real jobs on a real Spark with a real server."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic, UsageError
from hanzoai.pubsub.spark import PubSubConfig, PubSubProgress, progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.server_process import ServerProcess

pytestmark = [
    pytest.mark.timeout(300),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def config(server: ServerProcess) -> PubSubConfig:
    return PubSubConfig(server.url, token_file=str(server.token_file))


def reported(server: ServerProcess, topic: str, prefix: str = "spark.") -> list[dict[str, Any]]:
    return [each for each in server.messages(topic) if each["type"].startswith(prefix)]


def test_a_batch_job_reports_its_stages_and_tasks(
    spark: SparkSession, server: ServerProcess
) -> None:
    with PubSubProgress(spark, "progress.batch", config(server)) as progress:
        spark.range(0, 1_000, 1, 4).repartition(3).count()
    messages = reported(server, "progress.batch")
    assert messages[0]["type"] == "spark.run.started"
    assert messages[-1]["type"] == "spark.run.ended"
    assert messages[-1]["data"]["state"] == "ended"
    assert messages[0]["data"]["application"] == spark.sparkContext.applicationId
    jobs = {each["data"]["job"]: each["data"] for each in messages if "job" in each["data"]}
    assert jobs
    assert {each["state"] for each in jobs.values()} == {"succeeded"}
    assert sum(each["done"] for each in jobs.values()) >= 8
    assert {each["data"]["run"] for each in messages} == {progress.run}
    assert progress.stats.published == len(messages)
    assert progress.stats.failed == 0


class _SlowListener:
    """Delays each event on its way to Spark's status tracker."""

    DELAY = 0.03

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on"):
            raise AttributeError(name)
        return self._delay

    def _delay(self, _event: object) -> None:
        time.sleep(self.DELAY)

    class Java:
        implements: ClassVar = ["org.apache.spark.scheduler.SparkListenerInterface"]


def test_the_last_job_is_reported_even_if_spark_reports_it_after_the_block(
    spark: SparkSession, server: ServerProcess
) -> None:
    context: Any = spark.sparkContext
    bus = context._jsc.sc().listenerBus()
    slow = _SlowListener()
    try:
        with PubSubProgress(spark, "progress.late", config(server)):
            bus.addToStatusQueue(slow)
            spark.range(0, 1_000, 1, 4).repartition(3).count()
    finally:
        bus.removeListener(slow)
    reports = [each["data"] for each in reported(server, "progress.late")]
    jobs = {each["job"]: each for each in reports if "job" in each}
    assert {each["state"] for each in jobs.values()} == {"succeeded"}
    assert sum(each["done"] for each in jobs.values()) == 8


def test_a_job_shorter_than_the_interval_is_reported_from_start_to_end(
    spark: SparkSession, server: ServerProcess
) -> None:
    with PubSubProgress(spark, "progress.short", config(server), interval=60.0):
        pass
    types = [each["type"] for each in reported(server, "progress.short")]
    assert types == ["spark.run.started", "spark.run.ended"]


def test_a_running_job_reports_before_it_ends(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def wait(rows: Any) -> Any:
        import time

        while not gate.exists():
            time.sleep(0.02)
        yield from rows

    with PubSubProgress(spark, "progress.running", config(server), interval=0.1):
        job = threading.Thread(target=spark.sparkContext.range(4).mapPartitions(wait).count)
        job.start()
        try:
            while not (started := reported(server, "progress.running", "spark.job")):
                pass
        finally:
            gate.touch()
            job.join()
    assert started[0]["data"]["state"] == "running"
    assert started[0]["data"]["done"] == 0
    end = reported(server, "progress.running", "spark.job")[-1]
    assert end["type"] == "spark.job.ended"
    assert end["data"]["state"] == "succeeded"
    assert end["data"]["done"] == end["data"]["tasks"]


def test_a_stream_reports_its_micro_batches_but_not_their_jobs(
    spark: SparkSession,
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, Spark reports the end of a query later than a user would wait.
    monkeypatch.setattr(progress, "_REPORT_WAIT", 60.0)
    monkeypatch.setattr(progress, "CLOSING", 60.0)
    source = str(tmp_path / "in")
    spark.range(0, 60, 1, 3).write.json(source)
    with PubSubProgress(spark, "progress.stream", config(server)):
        stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).json(source)
        query = (
            stream.writeStream.format("noop")
            .queryName("alerts")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    messages = reported(server, "progress.stream", "spark.query")
    assert messages[-1]["type"] == "spark.query.terminated"
    end = messages[-1]["data"]
    assert end["query"] == {"id": str(query.id), "run": str(query.runId), "name": "alerts"}
    assert (end["state"], end["rows_total"], end["error"]) == ("stopped", 60, None)
    assert reported(server, "progress.stream", "spark.job") == []


def test_a_failed_job_is_reported_without_the_text_of_its_error(
    spark: SparkSession, server: ServerProcess
) -> None:
    def fail(rows: Any) -> Any:
        raise RuntimeError("s3cret")

    with (
        pytest.raises(Exception, match="s3cret"),
        PubSubProgress(spark, "progress.fails", config(server)),
    ):
        spark.sparkContext.range(2).mapPartitions(fail).count()
    messages = reported(server, "progress.fails")
    assert messages[-1]["data"]["state"] == "failed"
    assert [each["data"]["state"] for each in messages if "job" in each["data"]][-1] == "failed"
    assert "s3cret" not in str(messages)


def test_a_server_out_of_reach_stops_no_job(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "t0ken")
    with PubSubProgress(spark, "progress.nowhere", PubSubConfig("http://127.0.0.1:9")) as watched:
        assert spark.range(10).count() == 10
    assert watched.stats.published == 0
    assert watched.stats.failed > 0
    assert "t0ken" not in caplog.text
    with pytest.raises(UsageError, match="already reported a run"), watched:
        pass


def test_what_a_silent_server_has_not_confirmed_at_the_end_counts_as_failed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "t0ken")
    monkeypatch.setattr(progress, "CLOSING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with PubSubProgress(spark, "progress.silent", PubSubConfig(url)) as watched:
            assert spark.range(10).count() == 10
        assert watched.stats.published == 0
        assert watched.stats.failed > 0


def test_an_invalid_topic_or_interval_is_rejected_immediately(spark: SparkSession) -> None:
    settings = PubSubConfig("http://127.0.0.1:9")
    with pytest.raises(InvalidTopic):
        PubSubProgress(spark, "jobs.*", settings)
    with pytest.raises(InvalidOption) as caught:
        PubSubProgress(spark, "jobs.nightly", settings, interval=0.01)
    assert caught.value.field == "interval"
