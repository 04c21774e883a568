"""Log lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PubSubClient, PubSubError
from pubsub_server.observe import logs
from pubsub_server.settings.sources import load
from pubsub_server.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    logger = logging.getLogger(logs.LOGGER)
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


def test_into_a_pipe_each_line_is_json(logger: logging.Logger) -> None:
    out = io.StringIO()
    logs.configure(load({}), out)
    logger.info("ready: %s", 'a "b"\n')
    try:
        int("inside")
    except ValueError:
        logger.exception("failed")
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["level"], first["message"]) == ("info", 'ready: a "b"\n')
    assert first["time"].endswith("+00:00")
    assert "ValueError: invalid literal" in second["exception"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_warning_of_a_library_has_the_same_form(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    library = logging.getLogger("opentelemetry.exporter")
    # pytest has a handler at the root logger, unlike the server.
    monkeypatch.setattr(library, "propagate", False)
    logs.configure(load({"log_format": form, "log_level": "debug"}), out)
    library.info("a batch is sent")
    library.warning("Failed to export %d spans", 3)
    logs.configure(load({"log_format": form, "log_level": "error"}), out)
    library.warning("a batch is sent again")
    (line,) = out.getvalue().splitlines()
    if form == "text":
        assert line.endswith("WARNING opentelemetry.exporter: Failed to export 3 spans")
    else:
        entry = json.loads(line)
        assert (entry["level"], entry["logger"]) == ("warning", "opentelemetry.exporter")
        assert entry["message"] == "Failed to export 3 spans"


@pytest.mark.parametrize(("out", "form"), [(Terminal(), "auto"), (io.StringIO(), "text")])
def test_on_a_terminal_each_line_is_text(
    logger: logging.Logger, out: io.StringIO, form: str
) -> None:
    logs.configure(load({"log_format": form}), out)
    logger.warning("attention")
    assert out.getvalue().endswith("WARNING pubsub_server: attention\n")


def test_lines_below_the_level_are_left_out_and_configuring_twice_writes_once(
    logger: logging.Logger,
) -> None:
    out = io.StringIO()
    for _ in range(2):
        logs.configure(load({"log_level": "error", "log_format": "json"}), out)
    logger.warning("quiet")
    logger.error("loud")
    assert len(out.getvalue().splitlines()) == 1


def fail(*_: object) -> None:
    raise ZeroDivisionError


async def test_a_failure_names_the_connection_and_neither_its_token_nor_its_payload(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    logs.configure(load({"log_format": "json", "log_level": "debug"}), out)
    async with asyncio.timeout(60), running_server() as node:
        token = node.token("alice")
        async with PubSubClient(node.ws, token=token) as ps:
            await ps.connect()
            monkeypatch.setattr(node.hub.core.backplane, "publish", fail)
            with pytest.raises(PubSubError):
                await ps.publish("demo.x", {"data": "a-payload"})
            client_id = ps.client_id
    (line,) = [
        entry
        for entry in map(json.loads, out.getvalue().splitlines())
        if entry["message"] == "cannot handle a frame"
    ]
    assert client_id
    assert line["client_id"] == client_id
    assert token not in out.getvalue()
    assert "a-payload" not in out.getvalue()
