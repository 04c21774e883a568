"""Check that a webhook comes from your Hanzo PubSub server.

    from hanzoai.pubsub import webhooks

    seen = webhooks.SeenWebhooks()

    def receive(body: bytes, headers: Mapping[str, str]) -> int:
        try:
            delivery = webhooks.verify(body, headers, secret)
        except webhooks.InvalidWebhook as error:
            return error.status
        if seen.is_new(delivery.id):
            for event in delivery.events:
                print(event.event, event.topic, event.data)
        return 204

The server signs each request as in `Standard Webhooks <https://www.standardwebhooks.com>`_.
The module needs no running client and no third-party package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub.errors import InvalidOption, PubSubError
from hanzoai.pubsub.settings.checks import check_number, check_text, kind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InvalidWebhook", "SeenWebhooks", "WebhookDelivery", "WebhookEvent", "sign", "verify"]

TOLERANCE: Final = 300.0
"""Seconds that the clocks of both sides may differ, transport included."""

_BYTES: Final = bytes | bytearray | memoryview

_STAMP_MAX: Final = 10**12 - 1

_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"


class InvalidWebhook(PubSubError, ValueError):
    """The request is not a genuine, recent webhook of this server.

    Attributes:
        status: The HTTP status to answer with: 401 for a wrong signature or time, 400 for a body
            that is not a batch of events.
    """

    status: int

    def __init__(self, message: str, *, field: str, remedy: str, status: int = 401) -> None:
        super().__init__("invalid_webhook", message, field=field, remedy=remedy)
        self.status = status


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """One event of a webhook.

    Attributes:
        event: ``publish``, ``join``, ``update``, ``leave``, ``subscribe``, ``unsubscribe``, or one
            of the event stream: ``pubsub.subscribed``, ``pubsub.unsubscribed``,
            ``pubsub.published``.
        topic: The topic, or the pattern of a subscription.
        time: When it happened, in Unix seconds by the server's clock.
        data: The envelope of a ``publish``, the presence message of ``join``, ``update`` and
            ``leave``; the other events have an object with their fields.
    """

    event: str
    topic: str
    time: float
    data: Any


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One genuine request: a batch of events in the order in which they happened.

    Attributes:
        id: The same for every attempt to deliver this batch. Pass it to `SeenWebhooks.is_new`.
        sent_at: When the server sent this attempt, in Unix seconds.
        events: At least one event.
    """

    id: str
    sent_at: float
    events: tuple[WebhookEvent, ...]


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> WebhookDelivery:
    """Check the signature and the age of a request, and read its events.

    Args:
        body: The raw body, before anything parses it.
        headers: The headers of the request; upper and lower case are the same.
        secret: The ``secret`` of the webhook in the server's settings. Pass several while you
            replace one: each is tried.
        tolerance: Seconds above 0 by which ``webhook-timestamp`` may differ from ``now``; default
            300.
        now: Unix seconds; default: the clock of this machine.

    Raises:
        InvalidWebhook: A header is missing, the signature does not match, the request is too old
            or too new, or the body is not a batch of events. Answer with its ``status``.
        InvalidOption: ``secret`` is missing or empty, the text after ``whsec_`` is not Base64,
            ``headers`` is not a mapping of strings, or ``tolerance`` is not above 0.
    """
    _check_tolerance(tolerance)
    keys = [_key(each) for each in _secrets(secret)]
    if not hasattr(headers, "items"):  # the headers of frameworks are not always a Mapping
        raise InvalidOption(
            f"headers is {kind(headers)}, not a mapping.",
            field="headers",
            remedy="Pass the headers of the request, or a dict of them.",
        )
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(cast("object", name), str):
            raise InvalidOption(
                f"headers has a name that is {kind(name)}, not a string.",
                field="headers",
                remedy="Decode the names and values, as the headers of your framework do.",
            )
        found[name.lower()] = value
    identifier, stamp, given = (
        _header(found, f"webhook-{name}") for name in ("id", "timestamp", "signature")
    )
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= len(str(_STAMP_MAX))):
        raise InvalidWebhook(
            "The header webhook-timestamp is not a number of seconds.",
            field="webhook-timestamp",
            remedy="Answer with 401: the sender is not a Hanzo PubSub server.",
        )
    # Callers without a type checker may pass a parsed body.
    if not isinstance(cast("object", body), _BYTES):
        raise InvalidWebhook(
            "The body is not the bytes of the request.",
            field="body",
            remedy="Pass the raw body as it arrived, before anything parses it.",
            status=400,
        )
    signatures = _signatures(given)
    if not any(
        hmac.compare_digest(_digest(key, identifier, stamp, body), each)
        for key in keys
        for each in signatures
    ):
        raise InvalidWebhook(
            "The signature does not match the body.",
            field="webhook-signature",
            remedy="Pass the raw body as it arrived, and the secret of this webhook's settings.",
        )
    # Checked after the signature, so that a stranger cannot find out how this clock is set.
    sent_at = float(stamp)
    age = (time.time() if now is None else now) - sent_at
    if not abs(age) <= tolerance:  # also if `now` is not a number
        raise InvalidWebhook(
            f"The request is {abs(age):.0f} s {'old' if age > 0 else 'ahead of this clock'}; "
            f"the tolerance is {tolerance:g} s.",
            field="webhook-timestamp",
            remedy="Synchronize the clocks of both machines; an old request may be a replay.",
        )
    return WebhookDelivery(identifier, sent_at, _events(body))


def sign(body: bytes, secret: str, *, id: str, sent_at: float) -> dict[str, str]:
    """The three headers of a webhook, for tests of your receiver.

    Args:
        body: The body that is sent.
        secret: The secret that you pass to `verify`.
        id: The id of the delivery; not empty.
        sent_at: Unix seconds from 0 to 999,999,999,999; the fraction is dropped.

    Raises:
        InvalidOption: An argument has a wrong type or is out of range, or ``secret`` is empty or
            not Base64 after ``whsec_``; ``field`` names it.
    """
    if not isinstance(cast("object", body), _BYTES):
        raise InvalidOption(
            f"body is {kind(body)}, not bytes.",
            field="body",
            remedy="Encode the text, for example with json.dumps(...).encode().",
        )
    check_text("id", id, "the id of the delivery")
    if not id:
        raise InvalidOption("id is empty.", field="id", remedy="Give the id of the delivery.")
    stamp = str(int(check_number("sent_at", sent_at, 0, _STAMP_MAX, "Unix seconds")))
    (each,) = _secrets([secret])
    digest = base64.b64encode(_digest(_key(each), id, stamp, body)).decode()
    return {
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"{_VERSION},{digest}",
    }


class SeenWebhooks:
    """Remembers the ids of deliveries, so that you process a repeated one only once.

    The server repeats a delivery whose answer did not arrive. An id is remembered for twice
    ``tolerance``: as long as `verify` accepts its request. The ids are in the memory of this
    process; several processes need a shared store.

    Args:
        tolerance: The seconds that you pass to `verify`.

    Raises:
        InvalidOption: ``tolerance`` is not above 0.
    """

    def __init__(self, tolerance: float = TOLERANCE) -> None:
        _check_tolerance(tolerance)
        self._kept = 2 * tolerance
        self._ids: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of remembered ids."""
        return len(self._ids)

    def is_new(self, id: str) -> bool:
        """Return whether this id is new, and remember it. Several threads may call it.

        Call it only for deliveries that `verify` has accepted.
        """
        now = time.time()
        with self._lock:
            while self._ids and self._ids[oldest := next(iter(self._ids))] < now - self._kept:
                del self._ids[oldest]
            if id in self._ids:
                return False
            self._ids[id] = now
            return True


_SECRET_REMEDY: Final = "Pass the `secret` of the webhook in the server's settings."


def _check_tolerance(tolerance: float) -> None:
    if not isinstance(cast("object", tolerance), int | float):
        raise InvalidOption(
            f"tolerance is {kind(tolerance)}, not a number.",
            field="tolerance",
            remedy="Pass seconds, more than 0.",
        )
    if not tolerance > 0:  # also if it is NaN, with which every age would be accepted
        raise InvalidOption(
            f"tolerance is {tolerance} s.", field="tolerance", remedy="Pass more than 0."
        )


def _secrets(given: str | Sequence[str]) -> list[str]:
    """The secrets as a list; a variable that is not set is often passed as None."""
    several = isinstance(cast("object", given), Sequence) and not isinstance(
        given, str | bytes | bytearray
    )
    secrets = cast("list[object]", list(given) if several else [given])
    for each in secrets:
        if not isinstance(each, str):
            raise InvalidOption(
                f"secret is {kind(each)}, not a string.", field="secret", remedy=_SECRET_REMEDY
            )
    if not secrets or not all(secrets):
        raise InvalidOption("secret is empty.", field="secret", remedy=_SECRET_REMEDY)
    return cast("list[str]", secrets)


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not isinstance(cast("object", value), str) or not value:
        raise InvalidWebhook(
            f"The header {name} is missing.",
            field=name,
            remedy="Pass all headers of the request, or answer with 401: it is not signed.",
        )
    return value


def _key(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:  # anybody can sign with an empty key
        raise InvalidOption(
            "secret is not base64 after whsec_.", field="secret", remedy=_SECRET_REMEDY
        )
    return key


def _signatures(header: str) -> list[bytes]:
    """The signatures of the supported version; the header has several during a rotation."""
    found: list[bytes] = []
    for each in header.split(" ")[:16]:
        version, _, text = each.partition(",")
        if version == _VERSION:
            try:
                found.append(base64.b64decode(text, validate=True))
            except ValueError:
                continue
    return found


def _digest(key: bytes, identifier: str, stamp: str, body: bytes) -> bytes:
    signed = f"{identifier}.{stamp}.".encode(errors="replace") + body
    return hmac.new(key, signed, hashlib.sha256).digest()


def _events(body: bytes) -> tuple[WebhookEvent, ...]:
    try:
        events = tuple(map(_event, json.loads(bytes(body))["events"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _no_batch() from error
    if not events:
        raise _no_batch()
    return events


def _event(item: dict[str, Any]) -> WebhookEvent:
    event, topic, time_ms, data = (item[name] for name in ("event", "topic", "time", "data"))
    if not (
        isinstance(event, str)
        and isinstance(topic, str)
        and isinstance(time_ms, int | float)
        and not isinstance(time_ms, bool)
        and math.isfinite(time_ms / 1000)
    ):
        raise TypeError("no event")
    return WebhookEvent(event, topic, time_ms / 1000, data)


def _no_batch() -> InvalidWebhook:
    return InvalidWebhook(
        "The body is not a batch of events.",
        field="body",
        remedy="Point the webhook of a Hanzo PubSub server at this address, and nothing else.",
        status=400,
    )
