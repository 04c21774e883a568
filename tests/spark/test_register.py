"""`register` with different versions of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hanzoai.pubsub.errors import InvalidOption, UsageError
from hanzoai.pubsub.spark import register


def spark(error: Exception | None) -> Any:
    def take(source: type) -> None:
        if error is not None:
            raise error

    return SimpleNamespace(dataSource=SimpleNamespace(register=take))


def test_register_does_nothing_if_spark_has_found_the_source() -> None:
    register(spark(RuntimeError("[DATA_SOURCE_ALREADY_EXISTS] Data source 'hanzo-pubsub' …")))


def test_other_errors_of_spark_are_passed_on() -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        register(spark(RuntimeError("the session is stopped")))


def test_a_spark_without_python_data_sources_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidOption, match=r"Spark 4\.0 or later, or publish with foreach"):
        register(SimpleNamespace())


STOPPED = """
from pyspark.sql import SparkSession
from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.spark import register

builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "512m")
)
spark = builder.getOrCreate()
spark.stop()
try:
    register(spark)
except UsageError as error:
    print(error.message, error.remedy)
register(builder.getOrCreate())
print("registered")
"""


@pytest.mark.timeout(240)
def test_register_refuses_a_stopped_session_and_names_the_call_that_creates_another() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "This Spark session was stopped. "
        "Create another session with `SparkSession.builder.getOrCreate()`.",
        "registered",
    ]


def test_register_refuses_a_stopped_session_of_spark_connect() -> None:
    session = SimpleNamespace(dataSource=SimpleNamespace(register=None), is_stopped=True)
    with pytest.raises(UsageError, match="This Spark session was stopped"):
        register(session)
