from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.spark import register
from tests.spark import jvm, warm_daemon
from tests.spark.server_process import ServerProcess, serve
from tests.spark.source_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def brief_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that tests start use these options for their JVMs, too."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", jvm.options())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from serve(
        tmp_path_factory.mktemp("server"),
        publish_rate_service="1000000",
        history_max_messages="10000",
        faults="true",
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("python")
    os.environ["PYSPARK_PYTHON"] = str(warm_daemon.interpreter(folder))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2,3]")  # type: ignore[attr-defined,unused-ignore]
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # The queries are short: compiling their plans takes longer than interpreting them.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", jvm.options())
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def lab(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> Iterator[Lab]:
    register(spark)
    found = Lab(spark, server, tmp_path)
    yield found
    for query in found.queries:
        query.stop()
