"""Run nodes on one Valkey under traffic, scraped by Prometheus, and draw the dashboard.

    python scripts/dashboard/live.py docs/assets/dashboard.webp

Two nodes run for some minutes; halfway, the store stops and starts again. Then draw.mjs draws the
dashboard of these minutes. PATH must contain `prometheus`, `node` and Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import yaml
from aiohttp import web

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from pubsub_server.auth.dev_tokens import load_key  # noqa: E402
from scripts.dashboard.traffic import Traffic  # noqa: E402
from tests.cluster.nodes import Node  # noqa: E402
from tests.cluster.store import Store  # noqa: E402
from tests.cluster.waiting import until  # noqa: E402
from tests.ports import free_port  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

SCRAPED_EVERY: Final = 3
"""Scrape interval in seconds."""
RATE_INTERVAL: Final = 4 * SCRAPED_EVERY
"""Minimum of Grafana's `$__rate_interval`, in seconds; there is no rate before that."""
AWAY: Final = 6
"""Seconds for which the store is down."""
BOUND: Final = 30


@asynccontextmanager
async def webhooks() -> AsyncGenerator[str]:
    """Run a receiver that accepts every event; yield its URL."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running_store(folder: Path) -> AsyncGenerator[Store]:
    """Start a Valkey that keeps all acknowledged writes when it restarts."""
    store = Store("valkey", folder, "--appendonly", "yes", "--appendfsync", "always")
    await store.start()
    try:
        yield store
    finally:
        await store.end()


@asynccontextmanager
async def running_node(
    name: str, folder: Path, store: Store, key: Path, hook: str
) -> AsyncGenerator[Node]:
    """Start a node with limits that this traffic exceeds."""
    hooks = [{"url": hook, "secret": "0123456789abcdef", "topics": ["demo.room.*"]}]
    node = Node(
        name,
        folder,
        *("--redis-url", store.url, "--redis-durable", "--dev-key-file", str(key)),
        *("--publish-rate-service", "10000", "--publish-burst", "200"),
        *("--webhooks", json.dumps(hooks)),
        *("--audit-topics", "demo.room.*", "--audit-file", str(folder / f"{name}.audit")),
    )
    await node.start()
    try:
        yield node
    finally:
        await node.end()


@asynccontextmanager
async def prometheus(folder: Path, nodes: Sequence[Node]) -> AsyncGenerator[str]:
    """Run a Prometheus that scrapes these nodes; yield its URL."""
    targets = [
        {"targets": [f"127.0.0.1:{node.http_port}"], "labels": {"instance": node.name}}
        for node in nodes
    ]
    settings = {
        "global": {"scrape_interval": f"{SCRAPED_EVERY}s"},
        "scrape_configs": [{"job_name": "hanzo-pubsub", "static_configs": targets}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            *(f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"),
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        async with asyncio.timeout(BOUND), httpx.AsyncClient(trust_env=False) as http:

            async def ready() -> bool:
                try:
                    return (await http.get(f"{url}/-/ready")).is_success
                except httpx.TransportError:
                    return False

            await until(ready)
        yield url
    finally:
        # It receives Ctrl-C, too.
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def run(picture: Path, minutes: float, *, stay: bool) -> int:
    """Run the traffic, then draw the picture; return the exit code of draw.mjs."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = await stack.enter_async_context(running_store(folder))
        hook = await stack.enter_async_context(webhooks())
        key = folder / "dev.key"
        nodes = [
            await stack.enter_async_context(running_node(name, folder, store, key, hook))
            for name in ("node-1", "node-2")
        ]
        url = await stack.enter_async_context(prometheus(folder, nodes))
        async with Traffic(nodes, load_key(key)).running():
            # Wait for the first rates before the picture starts.
            await asyncio.sleep(RATE_INTERVAL + SCRAPED_EVERY)
            begin = time.time()
            await asyncio.sleep(minutes * 60 * 0.55)
            await store.end()
            await asyncio.sleep(AWAY)
            await store.start()
            await asyncio.sleep(begin + minutes * 60 - time.time())
            end = time.time()
        command = (
            *("node", str(HERE / "draw.mjs"), url, str(picture)),
            *(str(round(1000 * begin)), str(round(1000 * end)), str(SCRAPED_EVERY)),
        )
        process = await asyncio.create_subprocess_exec(*command)
        code = await process.wait()
        if stay:
            sys.stdout.write(f"to draw it again: {' '.join(command)}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        return code


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Draws the dashboard of a service under traffic.")
    parser.add_argument("picture", type=Path, help="the WebP to write")
    parser.add_argument("--minutes", type=float, default=3, help="minutes of traffic to show [3]")
    parser.add_argument("--stay", action="store_true", help="keep Prometheus running until Ctrl-C")
    given = parser.parse_args()
    if shutil.which("prometheus") is None:
        parser.error("Prometheus is needed: apt-get install --no-install-recommends prometheus")
    try:
        return asyncio.run(run(given.picture.resolve(), given.minutes, stay=given.stay))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
