"""Converts HTTP errors to exceptions, in every format that peers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pydantic_core import from_json, to_json

from hanzoai.pubsub.errors import from_code
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.http.status import retry_after_of, wait_of
from hanzoai.pubsub.settings.checks import bare_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.errors import PubSubError

_CODES: Final[Mapping[int, str]] = {
    400: "invalid_option",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "unsupported",
    408: "timeout",
    409: "conflict",
    413: "payload_too_large",
    415: "unsupported",
    422: "invalid_payload",
    429: "rate_limited",
    500: "internal",
    501: "unsupported",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}
"""Codes of statuses without a code in the body."""

_ELSEWHERE: Final = frozenset({404, 426})
"""Statuses of WebSocket ports for other requests."""

_SECRET_MIN: Final = 16
"""Minimum characters of a token that is hidden: a shorter one of a test may be part of a word."""


def read_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    topic: str | None = None,
    *,
    host: str = "The server",
    problem: str | None = None,
) -> PubSubError:
    """The exception for an HTTP error.

    Reads `application/problem+json` (RFC 9457) and the formats of plain peers: `{code,
    message}`, `{error: {...}}`, `{error: "..."}`, `{detail: "..."}`, or nothing readable.

    Args:
        status: 300 and above.
        headers: Headers of the answer.
        body: Body of the answer.
        topic: Topic of the request.
        host: Host that answered.
        problem: What may be wrong with the address, if that is not the HTTP API.
    """
    fields = _parse_object(body)
    word = word_of(fields.get("error"))
    fields = object_of(fields.get("error")) or fields
    code = word_of(fields.get("code"))
    if code is None and word in CODES:
        code = word
    message = (
        word_of(fields.get("detail"))
        or word_of(fields.get("message"))
        or (word if word != code else None)
        or word_of(fields.get("title"))
    )
    known = _CODES.get(status) or ("internal" if status >= 500 else "invalid_frame")
    if code is None or (code not in CODES and code.isdecimal()):
        code = known
    if message is None and not fields:
        strange = 300 <= status < 400 or is_page(headers, body)
        answer = describe_answer(status, headers, body) if strange else f"HTTP {status}"
        why = f": {problem}" if problem and status in _ELSEWHERE else " without saying why"
        message = f"{host} answered {answer}{'' if strange else why}."
    milliseconds = fields.get("retry_after_ms")
    wait = retry_after_of(_header(headers, "Retry-After"))
    if isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool):
        wait = wait_of(milliseconds)
    return from_code(
        code,
        message,
        remedy=word_of(fields.get("remedy")),
        topic=word_of(fields.get("topic")) or topic,
        field=word_of(fields.get("field")),
        retry_after=wait,
    )


def body_without_token(body: bytes, token: str) -> bytes:
    """The body of an answer without the token of its request."""
    try:
        text = to_json(from_json(body)).decode()  # some escape characters of tokens, such as `/`
    except ValueError:
        text = body.decode(errors="replace")
    return without_token(text, token, to_json(token).decode()[1:-1]).encode()


def without_token(text: str, *tokens: str) -> str:
    """A text of a server without these tokens.

    Some servers and gateways quote them in their errors, which end up in logs.
    """
    for secret in map(bare_token, tokens):
        if len(secret) < _SECRET_MIN or secret[:_SECRET_MIN] not in text:
            continue
        text = text.replace(secret, "[token]")
        # A close reason has at most 123 bytes, so it may end within the token.
        for size in range(min(len(secret), len(text)), _SECRET_MIN - 1, -1):
            if text.endswith(secret[:size]):
                text = text[:-size] + "[token]"
                break
    return text


def describe_answer(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """A description of the answer: status and content type, never the content."""
    kind = (_header(headers, "Content-Type") or "").partition(";")[0].strip().lower()[:64]
    start = body[:64].lstrip()[:1]
    if 300 <= status < 400:
        what = "a redirect, which is not followed"
    elif is_page(headers, body):
        what = "an HTML page"
    elif not body.strip():
        what = "an empty body"
    elif start in (b"{", b"["):
        what = "JSON"
    else:
        what = kind if kind.isprintable() and kind else "content without a type"
    return f"HTTP {status} and {what}"


def is_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an answer is an HTML page, which a PubSub server does not send."""
    kind = (_header(headers, "Content-Type") or "").lower()
    return "html" in kind or body[:64].lstrip().startswith(b"<")


def object_of(value: object) -> dict[str, object]:
    """The value if it is a JSON object; otherwise an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def word_of(value: object) -> str | None:
    """The value as text, if it is a non-empty string or an integer; otherwise None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _parse_object(body: bytes) -> dict[str, object]:
    try:
        return object_of(from_json(body))
    except ValueError:
        return {}


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == name.lower()), None)
