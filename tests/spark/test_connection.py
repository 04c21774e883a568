"""Requests of an executor: their route, and that no connection stays open."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest

from hanzoai.pubsub.spark import PubSubConfig
from hanzoai.pubsub.spark.connection import Connection, PerProcess

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def listener() -> Generator[tuple[str, list[tuple[str, str]]]]:
    """Run a server that answers every request with `{}`; yield its address and the requests."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Host"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def ask(url: str) -> int:
    config = PubSubConfig(url, token_env="TOKEN", request_timeout=5.0, allow_insecure=True)
    connection = Connection(config, None)
    try:
        return connection.ask("GET", "/v1/session", "t").status_code
    finally:
        connection.close()


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_server_elsewhere_is_asked_by_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    with listener() as (address, asked):
        monkeypatch.setenv("http_proxy", scheme + address)
        monkeypatch.setenv("no_proxy", "")
        assert ask("http://pubsub.example:8056/base/") == 200
    assert asked == [("http://pubsub.example:8056/base/v1/session", "pubsub.example:8056")]


def test_a_server_that_the_environment_exempts_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listener() as (address, asked):
        monkeypatch.setenv("http_proxy", "http://" + address)
        monkeypatch.setenv("no_proxy", ".invalid")
        with pytest.raises(httpx.ConnectError):
            ask("http://pubsub.invalid:8056")
    assert asked == []


def test_a_server_on_this_machine_is_never_asked_by_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listener() as (address, asked), listener() as (proxy, asked_of_proxy):
        monkeypatch.setenv("http_proxy", "http://" + proxy)
        assert ask("http://" + address) == 200
    assert asked == [("/v1/session", address)]
    assert asked_of_proxy == []


class Thing:
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_a_process_made_is_made_once_and_closed_at_its_end() -> None:
    known: PerProcess[Thing] = PerProcess()
    first, second = known.get("a", Thing), known.get("b", Thing)
    assert known.get("a", Thing) is first
    known.close()
    known.close()
    assert (first.closed, second.closed) == (1, 1)


def test_what_the_parent_made_is_neither_used_nor_closed_after_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: PerProcess[Thing] = PerProcess()
    first = known.get("a", Thing)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: 1)
        second = known.get("a", Thing)
        assert second is not first
        child.setattr("os.getpid", lambda: 2)
        known.close()
    assert (first.closed, second.closed) == (0, 0)
