"""Errors over HTTP: `application/problem+json` of RFC 9457, with code and remedy of the table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from hanzoai.pubsub.generated.errors import CODES

if TYPE_CHECKING:
    from pubsub_server.errors import ServiceError

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:hanzo:pubsub:error:"

_CHALLENGE: Final = 'Bearer realm="pubsub"'
_TITLES: Final = {
    405: "The address does not support this method.",
    415: "The server does not accept bodies of this type.",
}
"""Codes of HTTP statuses that are not in the table of errors."""
_REMEDIES: Final = {"unauthenticated": "Send the header `Authorization: Bearer TOKEN`."}
"""Remedies for HTTP, if the table describes a WebSocket client."""


def problem(
    error: ServiceError,
    request_id: str,
    *,
    status: int | None = None,
    remedy: str | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """The response for an error.

    Args:
        error: The error.
        request_id: Becomes `instance`; also in the header `X-Request-Id` and in the log.
        status: Instead of the status of the table, for example 405 or 415.
        remedy: Instead of the remedy of the error and of the table.
        headers: Further headers.
    """
    record = CODES.get(error.code, CODES["internal"])
    status = status or record.status or 500
    body: dict[str, object] = {
        "type": TYPE_PREFIX + error.code,
        "title": _TITLES.get(status, record.meaning),
        "status": status,
        "code": error.code,
        "detail": error.message,
        "remedy": remedy or error.remedy or _REMEDIES.get(error.code, record.remedy),
        "instance": request_id,
    }
    optional = {
        "field": error.field,
        "topic": error.topic,
        "retry_after_ms": error.retry_after_ms,
    }
    body.update({name: value for name, value in optional.items() if value is not None})
    extra = dict(headers or {})
    if status == 401:
        extra["WWW-Authenticate"] = _challenge(error.code)
    if status in {429, 503}:
        extra["Retry-After"] = str(max(1, math.ceil((error.retry_after_ms or 1000) / 1000)))
    return web.Response(
        body=orjson.dumps(body), status=status, content_type=CONTENT_TYPE, headers=extra
    )


def _challenge(code: str) -> str:
    # RFC 6750, 3.1: the answer to a request without a token has no error code.
    return _CHALLENGE if code == "unauthenticated" else f'{_CHALLENGE}, error="invalid_token"'
