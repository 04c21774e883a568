"""Fuzzes the REST API with schemathesis, and checks the responses with the bundled description.

Set HANZO_PUBSUB_SOAK to send ten times as many requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from pubsub_server.auth.api_keys import generate
from pubsub_server.server import OPENAPI
from pubsub_server.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import Case
    from schemathesis.checks import CheckFunction

pytest_plugins = ("schemathesis.pytest.plugin",)

SCHEMA = schemathesis.openapi.from_path(OPENAPI)
STREAM = "/v1/subscribe"
BOUNDED = settings(
    max_examples=200 if "HANZO_PUBSUB_SOAK" in os.environ else 20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
SECONDS = 30


@dataclass(frozen=True)
class Target:
    """Run a server in a separate thread; yield it with a key that it accepts."""

    url: str
    key: str


def serve(folder: Path, rules: list[object]) -> Iterator[Target]:
    key, digest = generate()
    entry = {"id": "fuzz", "sha256": digest, "user": "fuzz", "kind": "admin" if rules else "user"}
    (folder / "keys.yaml").write_text(yaml.safe_dump({"keys": [entry]}), encoding="utf-8")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": rules}), encoding="utf-8")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()
    context = running_server(
        api_keys_file=folder / "keys.yaml",
        rules=folder / "rules.yaml",
        behind_tls_proxy=True,
        publish_rate_service=1e6,
        linger_timeout=0,
        faults=False,
        log_level="error",
    )
    try:
        entering = stack.enter_async_context(context)
        server = asyncio.run_coroutine_threadsafe(entering, loop).result(SECONDS)
        yield Target(server.http, key)
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Allows everything to the admin."""
    rule = {"pattern": "**", "require": {"authenticated": True}}
    yield from serve(tmp_path_factory.mktemp("open"), [rule])


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Denies all reads, so that no stream stays open."""
    yield from serve(tmp_path_factory.mktemp("shut"), [])


def judge(case: Case[Any], target: Target) -> None:
    headers = {"Authorization": f"Bearer {target.key}"}
    hurry(case)
    # Null means absent, which the schema of an optional field does not express; test_rest.py lists
    # the rejected values.
    excluded: list[CheckFunction] = [negative_data_rejection]
    if contradicts(case):
        excluded.append(positive_data_acceptance)
    case.call_and_validate(
        base_url=target.url, headers=headers, timeout=SECONDS, excluded_checks=excluded
    )


def hurry(case: Case[Any]) -> None:
    """Shorten the wait of requests that the server may hold for half a minute."""
    body = case.body
    if isinstance(body, dict):
        wait = body.get("wait_ms")
        if isinstance(wait, int) and wait > 20:
            case.body = {**body, "wait_ms": 20}


def contradicts(case: Case[Any]) -> bool:
    """Whether the fields are valid one by one but not together, which a schema cannot express."""
    body = case.body if isinstance(case.body, dict) else {}
    two_ids = "id" in body and "Idempotency-Key" in (case.headers or {})
    query = set(case.query or {})
    return two_ids or ("after" in query and not query.isdisjoint({"before", "before_seq"}))


@SCHEMA.exclude(path=STREAM).parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@BOUNDED
def test_every_call_answers_as_described(case: Case[Any], target: Target) -> None:
    judge(case, target)


@SCHEMA.include(path=STREAM).parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@BOUNDED
def test_every_refused_stream_answers_as_described(case: Case[Any], shut: Target) -> None:
    judge(case, shut)
