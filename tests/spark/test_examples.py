"""The programs of examples/spark on a real Spark and a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.spark import orders_live, results_to_users, watched_job
from hanzoai.pubsub.spark import PubSubConfig, publish_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.server_process import ServerProcess

pytestmark = [
    pytest.mark.timeout(300),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"


def reached(server: ServerProcess) -> dict[str, str]:
    return {"url": server.url, "tokenFile": str(server.token_file)}


def test_each_row_of_a_table_reaches_its_user_once_even_if_the_job_runs_again(
    spark: SparkSession, server: ServerProcess
) -> None:
    for _ in range(2):
        results_to_users.publish(results_to_users.results(spark), **reached(server))
    for user in ("u0", "u49"):
        found = server.messages(f"user.{user}.results")
        numbers = [message["data"]["result_id"] for message in found]
        assert sorted(numbers) == list(range(int(user[1:]), 1000, 50))
        assert {message["type"] for message in found} == {"result"}


def test_orders_are_counted_in_windows_of_their_shop(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    orders = [("north", 10.0), ("north", 2.5), ("south", 4.0), ("north", 0.25)]
    settings = PubSubConfig(server.url, token_file=str(server.token_file))
    publish_partition(
        [
            {"topic": f"demo.shops.{shop}.orders", "data": {"amount": amount}}
            for shop, amount in orders
        ],
        settings,
    )
    query = (
        orders_live.dashboard(orders_live.orders(spark, **reached(server)), settings, str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    for shop, count, turnover in (("north", 3, 12.75), ("south", 1, 4.0)):
        # The newest message of each window; the orders may be in two adjacent windows.
        windows = {
            message["data"]["since"]: message["data"]
            for message in server.messages(f"demo.dashboard.{shop}")
        }
        assert sum(window["orders"] for window in windows.values()) == count
        assert sum(window["turnover"] for window in windows.values()) == turnover


def test_a_watched_job_reports_its_stages(server: ServerProcess) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "watched_job.py"), "100000"],
        env={
            **os.environ,
            "HANZO_PUBSUB_URL": server.url,
            "HANZO_PUBSUB_TOKEN": server.token_file.read_text(),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout.splitlines()
    assert output[0] == "5,000 keys"
    messages = server.messages(watched_job.TOPIC)
    assert output[1] == f"{len(messages)} messages on {watched_job.TOPIC}"
    assert messages[0]["data"]["name"] == "nightly"
    assert messages[-1]["type"] == "spark.run.ended"
    ended = [each["data"] for each in messages if each["type"] == "spark.job.ended"]
    assert ended
    assert {each["state"] for each in ended} == {"succeeded"}


def test_every_example_has_a_test_and_fits_on_a_page() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for example in sorted(EXAMPLES.glob("*.py")):
        if example.name == "__init__.py":
            continue
        assert example.stem in here, example.name
        code = [line for line in example.read_text(encoding="utf-8").splitlines() if line.strip()]
        assert len(code) <= 60, f"{example.name} has {len(code)} lines"
