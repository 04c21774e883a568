"""Calculates the history that a topic needs for its streams to survive an outage.

    python -m hanzoai.pubsub.spark.retention --rate 50 --outage 600

Pure arithmetic on the busiest topic; docs/spark.md explains how to use the result.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.settings.checks import check_number, check_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVELOPE = 770
"""Approximate bytes of a message in the server's memory, without its data: about 220 of JSON and
550 of objects, which `history_max_bytes` includes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Settings that the server needs.

    Attributes:
        messages: Messages of the busiest topic: `history_max_messages`.
        seconds: Seconds of history: `history_max_age`.
        bytes: Approximate bytes of all topics together: `history_max_bytes`.
    """

    messages: int
    seconds: int
    bytes: int


def retention(
    rate: float,
    *,
    trigger: float = 1.0,
    batch: float = 0.5,
    outage: float = 0.0,
    reserve: float = 2.0,
    topics: int = 1,
    message_bytes: int = 250,
) -> Retention:
    """Return the history that a stream needs to read every message.

    A message waits for its micro-batch at most for the sum of the outage, the trigger's interval
    and the previous batch.

    Args:
        rate: Peak messages per second of the busiest topic.
        trigger: Seconds between micro-batches.
        batch: Seconds that a micro-batch takes.
        outage: Seconds that the job may be down: a restart, a deployment, a night.
        reserve: Safety factor.
        topics: Number of equally busy topics.
        message_bytes: Bytes of the data of a message.

    Raises:
        InvalidOption: One of them is not a positive number; `field` names it.
    """
    check_number("rate", rate, 0.001, 1e9, "messages per second")
    for name, value in (("trigger", trigger), ("batch", batch), ("outage", outage)):
        check_number(name, value, 0, 1e9, "seconds")
    check_number("reserve", reserve, 1, 1_000, "times")
    check_whole("topics", topics, 1, 10**9, "topics")
    check_whole("message_bytes", message_bytes, 1, 1 << 30, "bytes")
    seconds = (trigger + batch + outage) * reserve
    messages = math.ceil(rate * seconds)
    return Retention(messages, math.ceil(seconds), messages * topics * (message_bytes + _ENVELOPE))


def sustained_rate(
    messages: int, *, trigger: float = 1.0, batch: float = 0.5, outage: float = 0.0
) -> float:
    """Return the messages per second that a stream reads without loss, by the retained messages.

    Args:
        messages: Retained messages: `history_max_messages`.
        trigger: Seconds between micro-batches.
        batch: Seconds that a micro-batch takes.
        outage: Seconds that the job may be down.
    """
    check_whole("messages", messages, 1, 10**12, "messages")
    waits = trigger + batch + outage
    check_number("trigger", waits, 0.001, 1e9, "seconds")
    return messages / waits


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the settings for the given options."""
    parser = argparse.ArgumentParser(
        prog="python -m hanzoai.pubsub.spark.retention",
        description="What a server has to retain for a stream of Spark that reads its topics.",
    )
    add = parser.add_argument
    add("--rate", type=float, required=True, help="messages per second of the busiest topic")
    add("--trigger", type=float, default=1.0, help="seconds between micro-batches (1)")
    add("--batch", type=float, default=0.5, help="duration of a micro-batch in seconds (0.5)")
    add("--outage", type=float, default=0.0, help="longest outage of the job in seconds (0)")
    add("--reserve", type=float, default=2.0, help="factor for reserve (2)")
    add("--topics", type=int, default=1, help="number of topics with this rate (1)")
    add("--message-bytes", type=int, default=250, help="bytes of `data` per message (250)")
    given = parser.parse_args(arguments)
    try:
        need = retention(**vars(given))
    except InvalidOption as error:
        parser.error(str(error))
    sys.stdout.write(
        f"history_max_messages: {need.messages}\n"
        f"history_max_age: {need.seconds}\n"
        f"history_max_bytes: {math.ceil(need.bytes / (1 << 20))}MiB\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
