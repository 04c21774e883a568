"""Logs on standard error: text on a terminal, JSON otherwise; never a token or a payload."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

import orjson

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings

LOGGER: Final = "pubsub_server"


class JsonFormatter(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        client_id = getattr(record, "client_id", None)
        if client_id:
            entry["client_id"] = client_id
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry).decode()


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Sends log lines of the server and warnings of libraries to a stream, or standard error."""
    out = sys.stderr if stream is None else stream
    text = settings.log_format == "text" or (settings.log_format == "auto" and out.isatty())
    form = (
        logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        if text
        else JsonFormatter()
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(form)
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False
    # Libraries, such as the exporter of OpenTelemetry, have loggers without a handler.
    last = logging.StreamHandler(out)
    last.setFormatter(form)
    last.setLevel(max(logger.level, logging.WARNING))
    logging.lastResort = last
