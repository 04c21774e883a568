"""A server in a separate process, which executors can reach, and its data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

COMMAND = (sys.executable, "-m", "pubsub_server")
PATIENCE = 60
"""Maximum seconds of a request."""


@dataclass(frozen=True)
class ServerProcess:
    """Attributes: `url` of the HTTP API; `token_file`, which contains the token of a service."""

    url: str
    token_file: Path
    admin: str

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """Return all retained messages of a topic, oldest first."""
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            answer = httpx.get(
                f"{self.url}/v1/topics/{topic}/history",
                params={"after": after, "limit": 500},
                headers={"Authorization": f"Bearer {self.admin}"},
                trust_env=False,
                timeout=PATIENCE,
            )
            page = answer.raise_for_status().json()
            found += page["messages"]
            if not page["has_more"]:
                return found
            after = found[-1]["seq"]

    def data(self, topic: str) -> list[Any]:
        """Return the payloads of a topic, sorted as JSON."""
        return sorted((message["data"] for message in self.messages(topic)), key=json.dumps)

    def publish(self, topic: str, count: int, *, begin: int = 0, **fields: Any) -> list[int]:
        """Publish `{"n": n}` for `count` numbers from `begin`; return their positions."""
        items = [
            {"topic": topic, "data": {"n": n}, "id": f"{topic}-{n}", **fields}
            for n in range(begin, begin + count)
        ]
        found: list[int] = []
        for place in range(0, count, 500):
            answer = self._post("/v1/messages:batch", {"messages": items[place : place + 500]})
            found += [result["seq"] for result in answer["results"]]
        return found

    def forget(self, topic: str, *, log: bool = False) -> None:
        """Delete the messages of a topic; with `log`, also its numbering."""
        self._post("/v1/faults", {"fault": "evict", "topic": topic, "log": log}, self.admin)

    def requests(self, route: str) -> int:
        """Return the number of answered requests to a route."""
        text = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=PATIENCE).text
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in text.splitlines()
            if line.startswith("hanzo_pubsub_http_requests_total{") and f'route="{route}"' in line
        )

    def _post(self, path: str, body: object, token: str | None = None) -> Any:
        answer = httpx.post(
            self.url + path,
            json=body,
            headers={"Authorization": f"Bearer {token or self.token_file.read_text()}"},
            trust_env=False,
            timeout=PATIENCE,
        )
        return answer.raise_for_status().json()


def token(*arguments: str) -> str:
    """Return a development token."""
    done = subprocess.run(
        [*COMMAND, "token", *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def serve(folder: Path, **settings: str) -> Generator[ServerProcess]:
    """Run a server with these settings (`HANZO_PUBSUB_…`), and stop it at the end."""
    variables = {f"HANZO_PUBSUB_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(
        [*COMMAND, "serve", "--dev", "--http-port", "0", "--ws-port", "0"],
        stdout=subprocess.PIPE,
        env={**os.environ, "HANZO_PUBSUB_LOG_LEVEL": "warning", **variables},
    ) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            file = folder / "token"
            file.write_text(token("--user", "spark", "--service"))
            yield ServerProcess(ready["http"], file, token("--user", "root", "--admin"))
        finally:
            process.terminate()
            process.wait(30)
