"""Converts messages to rows of a source."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from hanzoai.pubsub.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE_SCHEMA: Final = (
    "topic STRING, id STRING, type STRING, data STRING, sender STRING,"
    " timestamp TIMESTAMP, ttl INT, seq BIGINT"
)
"""Columns of a source."""

_INT_MAX: Final = 2**31 - 1


def record_batch(messages: Sequence[dict[str, Any]]) -> Any:
    """Return rows as a `pyarrow.RecordBatch` of `SOURCE_SCHEMA`.

    Args:
        messages: Envelopes of the history.

    Raises:
        ProtocolError: A message is not an envelope.
    """
    pa: Any = import_module("pyarrow")
    text, long = pa.string(), pa.int64()
    stamp = pa.timestamp("us", tz="UTC")
    try:
        columns = {
            "topic": pa.array([each["topic"] for each in messages], text),
            "id": pa.array([each["id"] for each in messages], text),
            "type": pa.array([each["type"] for each in messages], text),
            "data": pa.array([_json(each["data"]) for each in messages], text),
            "sender": pa.array([_sender(each.get("sender")) for each in messages], text),
            "timestamp": pa.array([each["timestamp"] * 1000 for each in messages], stamp),
            "ttl": pa.array([_ttl(each.get("ttl")) for each in messages], pa.int32()),
            "seq": pa.array([each["seq"] for each in messages], long),
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        # Errors do not contain the content of a message.
        raise ProtocolError(
            f"An entry of the history is not a message ({type(error).__name__}).",
            remedy="Check that `url` is the URL of a PubSub server.",
        ) from None
    return pa.RecordBatch.from_pydict(columns)


def _json(value: object) -> str:
    return to_json(value).decode()


def _sender(value: object) -> str | None:
    return None if value is None else _json(value)


def _ttl(value: int | None) -> int | None:
    return None if value is None else min(value, _INT_MAX)
