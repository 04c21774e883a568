"""Workers find the package if a script uses an environment's Python without activating it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.server_process import ServerProcess

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from hanzoai.pubsub.spark import register

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .getOrCreate()
)
register(spark)
frame = spark.createDataFrame([("demo.any", '{"n": 1}')], "topic string, data string")
options = {"url": sys.argv[1], "tokenFile": sys.argv[2]}
frame.write.format("hanzo-pubsub").options(**options).mode("append").save()
spark.stop()
"""


@pytest.mark.timeout(240)
def test_a_local_session_publishes_with_the_python_that_runs_the_script(
    server: ServerProcess, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM, encoding="utf-8")
    # `python3` on this PATH has neither pyspark nor the package.
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text("#!/bin/sh\nexit 3\n", encoding="ascii")
    (bare / "python3").chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    env["PATH"] = f"{bare}:/usr/bin:/bin"
    env["SPARK_LOCAL_IP"] = "127.0.0.1"
    done = subprocess.run(
        [sys.executable, script, server.url, str(server.token_file)],
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [each["data"] for each in server.messages("demo.any")] == [{"n": 1}]
