"""Runs a Spark job that reports its progress, if Spark can run on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hanzoai.pubsub import PubSubClient

if TYPE_CHECKING:
    from examples.chat.server import Server
    from hanzoai.pubsub import Subscription

JOB = Path(__file__).parent.parent / "spark" / "watched_job.py"
TOPIC = "demo.jobs.nightly"
LIMIT = 120.0
"""Seconds that Spark may take to start, run and exit."""


def missing() -> str | None:
    """Return what Spark needs on this machine, in one line, or None if Spark can run."""
    if find_spec("pyspark") is None:
        return "no Spark: install it with `pip install 'hanzoai.pubsub[spark]'`"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        return "no Spark: it needs Java 17 (Debian: `apt-get install openjdk-17-jre-headless`)"
    return None


async def show(server: Server) -> None:
    """Run the job and print its output, or print in one line why it cannot run."""
    lacking = missing()
    if lacking:
        print(lacking, flush=True)
        return
    print(f"a Spark job, watched on {TOPIC}:", flush=True)
    client = PubSubClient(server.ws, server.token("watcher", service=True), rest_url=server.http)
    async with client as ps, ps.subscribe(TOPIC) as messages:
        watching = asyncio.create_task(_watch(messages))
        try:
            async with asyncio.timeout(LIMIT):
                code = await _run(server)
                if code:
                    print(f"  Spark could not run the job (exit code {code})", flush=True)
                else:
                    await watching
        except TimeoutError:
            print(f"  the Spark job did not end within {LIMIT:.0f} s", flush=True)
        finally:
            watching.cancel()


async def _run(server: Server) -> int:
    """Run the job. Cancelling the task that waits for the job terminates the job."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(JOB), "4000000"),
        env={
            **os.environ,
            "HANZO_PUBSUB_URL": server.http,
            "HANZO_PUBSUB_TOKEN": server.token("spark", service=True),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _watch(messages: Subscription) -> None:
    async for message in messages:
        data = message.data
        if message.type.startswith("spark.job"):
            tasks = f"{data['done']}/{data['tasks']} tasks"
            # Spark counts the tasks of stages whose result exists, and does not run them.
            if data["state"] == "succeeded" and data["done"] < data["tasks"]:
                tasks += ", the other results existed"
            print(f"  job {data['job']} {data['state']}: {tasks}", flush=True)
        elif message.type == "spark.run.ended":
            print(f"  {data['state']} after {data['seconds']:.0f} s", flush=True)
            return
