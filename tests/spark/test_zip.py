"""A job gets the package only as a zip, which `spark-submit` ships."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import hanzoai.pubsub

if TYPE_CHECKING:
    from tests.spark.server_process import ServerProcess

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import hanzoai.pubsub
from hanzoai.pubsub.spark import register

assert "package.zip" in hanzoai.pubsub.__file__, hanzoai.pubsub.__file__
spark = SparkSession.builder.getOrCreate()
register(spark)
url, token_file, checkpoint = sys.argv[1:]
options = {"url": url, "tokenFile": token_file}
events = spark.readStream.format("hanzo-pubsub").options(
    **options, topics="demo.zip.read", startingOffsets="earliest"
)
query = (
    events.load()
    .selectExpr("'demo.zip.written' topic", "data")
    .writeStream.format("hanzo-pubsub")
    .options(**options, checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
"""


@pytest.mark.timeout(240)
def test_a_stream_reads_and_publishes_with_the_package_in_a_zip(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.publish("demo.zip.read", 3)
    # As in the documentation: Python finds a namespace package only if the zip has its folder.
    namespace = Path(hanzoai.pubsub.__file__).parents[1]
    command = (sys.executable, "-m", "zipfile", "-c", tmp_path / "package.zip", namespace)
    subprocess.run(command, check=True, timeout=60)
    (tmp_path / "job.py").write_text(PROGRAM, encoding="utf-8")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1")
    done = subprocess.run(
        [
            *(submit, "--master", "local[1]", "--driver-memory", "512m"),
            *(word for setting in settings for word in ("--conf", setting)),
            *("--py-files", tmp_path / "package.zip", tmp_path / "job.py"),
            *(server.url, server.token_file, tmp_path / "checkpoint"),
        ],
        env={
            **os.environ,
            # This Python has the packages of the environment, but not the product: Python reads
            # the link to its sources only in the folder of an environment.
            "PYSPARK_PYTHON": os.path.realpath(sys.executable),
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert server.data("demo.zip.written") == [{"n": 0}, {"n": 1}, {"n": 2}]
