from __future__ import annotations

import json
import socket
import ssl
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    Conflict,
    InvalidOption,
    InvalidPayload,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    ProtocolError,
    PubSubError,
    RateLimited,
    TokenExpired,
    Unavailable,
    Unsupported,
)
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.problems import read_error
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.http.status import (
    close_code_for,
    remedy_of,
    retry_after_of,
    why_unreachable,
)
from hanzoai.pubsub.settings.options import read_options
from tests.python.rest.rig import OLD, QuickClock, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    import respx


async def test_the_error_for_an_unknown_answer_names_the_address_and_its_origin(
    respx_mock: respx.MockRouter,
) -> None:
    respx_mock.get("http://127.0.0.1:24057/v1/topics/a.b/presence").respond(404, text="no")
    for rest_url, derived in ((None, True), ("http://127.0.0.1:24057", False)):
        options = read_options("ws://127.0.0.1:24057/ws", OLD, rest_url=rest_url, environ={})
        rest = Rest(options, Tokens(), QuickClock())
        with pytest.raises(NotFound) as caught:
            await rest.perform(rest_calls.presence("a.b"))
        await rest.close()
        assert caught.value.message == "127.0.0.1:24057 answered HTTP 404 without saying why."
        assert ("pass `rest_url`" in caught.value.remedy) == derived


@pytest.mark.parametrize(
    ("status", "body", "cls", "code"),
    [
        (400, {"code": "invalid_topic", "detail": "d"}, PubSubError, "invalid_topic"),
        (400, {"detail": [{"loc": ["query"]}]}, InvalidOption, "invalid_option"),
        (401, {"error": "unauthorized"}, AuthError, "unauthenticated"),
        (401, {"error": "token_expired"}, TokenExpired, "token_expired"),
        (403, {"error": {"code": "forbidden", "message": "d"}}, PermissionDenied, "forbidden"),
        (403, "<html>", PermissionDenied, "forbidden"),
        (404, "", NotFound, "not_found"),
        (405, {}, Unsupported, "unsupported"),
        (409, {"code": 409, "message": "d"}, Conflict, "conflict"),
        (413, {"message": "d"}, PayloadTooLarge, "payload_too_large"),
        (415, {}, Unsupported, "unsupported"),
        (418, {}, ProtocolError, "invalid_frame"),
        (422, {"code": "invalid_payload"}, InvalidPayload, "invalid_payload"),
        (429, {"code": "connection_limit"}, PubSubError, "connection_limit"),
        (500, {}, Unavailable, "internal"),
        (502, "Bad gateway", Unavailable, "unavailable"),
        (507, {}, Unavailable, "internal"),
        (400, {"code": "quota", "detail": "d"}, PubSubError, "quota"),
    ],
)
def test_every_error_body_is_understood(
    status: int, body: Any, cls: type[PubSubError], code: str
) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = read_error(status, {}, raw, "a.b")
    assert isinstance(error, cls)
    assert error.code == code
    assert error.topic == "a.b"
    if isinstance(body, dict) and "d" in json.dumps(body).split('"'):
        assert error.message in ("d", "d (topic a.b).")
    assert error.message


def test_a_problem_document_is_read_whole() -> None:
    body = {
        "title": "T",
        "status": 429,
        "code": "rate_limited",
        "detail": "10 a second",
        "remedy": "Wait.",
        "field": "data",
        "topic": "c",
        "retry_after_ms": 250,
    }
    error = read_error(429, {"retry-after": "1"}, json.dumps(body).encode(), "a.b")
    assert isinstance(error, RateLimited)
    assert (error.message, error.remedy, error.field) == ("10 a second", "Wait.", "data")
    assert (error.topic, error.retry_after) == ("c", 0.25)


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [("-1", 0.0), ("NaN", 0.0), ("86400000", 3600.0), ("1e400", 3600.0), ("9" * 400, 3600.0)],
)
def test_a_requested_wait_is_an_hour_at_most(milliseconds: str, seconds: float) -> None:
    body = b'{"code": "rate_limited", "retry_after_ms": %s}' % milliseconds.encode()
    assert read_error(429, {}, body).retry_after == seconds


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is not GMT."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 1.5 ", 1.5),
        ("-5", 0.0),
        ("1e9", 3600.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        (format_datetime(datetime.fromtimestamp(1_000, UTC), usegmt=True), 10.0),
        (format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True), 0.0),
        ("Thu Jan  1 00:16:40 1970", 10.0),
    ],
)
@pytest.mark.usefixtures("tokyo")
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_of(value, wall=990.0) == seconds


def test_statuses_stand_for_close_codes() -> None:
    assert [close_code_for(s) for s in (401, 403, 429, 503, 404)] == [4401, 4403, 4429, 1013, None]


def test_causes_of_a_failure_are_distinguished() -> None:
    def wrapped(cause: BaseException) -> BaseException:
        error = httpx.ConnectError("x")
        error.__cause__ = cause
        return error

    assert "cannot be resolved" in why_unreachable(wrapped(socket.gaierror(8, "n")), "h")
    assert "no program uses this port" in why_unreachable(wrapped(ConnectionRefusedError()), "h")
    assert why_unreachable(ConnectionRefusedError(), "::1", port=8057).startswith(
        "[::1]:8057 refused"
    )
    assert why_unreachable(TimeoutError(), "h", "p", port=1).startswith(
        "h:1 or the proxy p did not"
    )
    assert "reset" in why_unreachable(wrapped(ConnectionResetError()), "h")
    assert "in time" in why_unreachable(wrapped(TimeoutError()), "h")
    assert "TLS" in why_unreachable(wrapped(ssl.SSLError(1, "x")), "h")
    plain = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    plain.reason = "WRONG_VERSION_NUMBER"
    why = why_unreachable(wrapped(plain), "h")
    assert why.endswith("the port answers without TLS (WRONG_VERSION_NUMBER).")
    assert remedy_of(why) == "Use ws:// or http://, or the port that uses TLS."
    for code, words in ((9, "certificate is not yet valid"), (10, "certificate has expired")):
        untimely = ssl.SSLCertVerificationError(1, "x")
        untimely.verify_code, untimely.verify_message = code, words
        why = why_unreachable(wrapped(untimely), "h")
        assert why.endswith(f"not trusted: {words}.")
        assert (remedy_of(why) or "").startswith("Check the clock of this machine")
    cut = httpx.RemoteProtocolError("peer closed connection without sending complete message body")
    assert why_unreachable(cut, "h", port=1) == "h:1 closed the connection."
    other = httpx.RemoteProtocolError("illegal status line: bytearray(b'SSH-2.0')")
    assert why_unreachable(other, "h", port=1) == "h:1 does not answer in HTTP."
    assert "cannot be reached (ValueError)" in why_unreachable(ValueError(), "h")
    both = ExceptionGroup("x", [OSError("y"), ConnectionRefusedError()])
    assert "no program uses this port" in why_unreachable(both, "h")
