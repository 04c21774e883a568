# Generated from spec/errors.yaml by `make generate`; do not edit.
"""Every error code and close code, with what it means and what to do about it."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, NamedTuple, TypeAlias

CloseAction: TypeAlias = Literal["retry", "reauth", "stop"]
"""What a client does: try again, try again with a new token, or end."""

WireCode: TypeAlias = Literal[
    "invalid_frame",
    "invalid_topic",
    "invalid_payload",
    "invalid_option",
    "payload_too_large",
    "unauthenticated",
    "token_invalid",
    "token_expired",
    "auth_timeout",
    "forbidden",
    "not_found",
    "conflict",
    "rate_limited",
    "connection_limit",
    "subscription_limit",
    "slow_consumer",
    "idle_timeout",
    "unsupported",
    "unavailable",
    "going_away",
    "internal",
]
"""Codes that a server sends."""

ClientCode: TypeAlias = Literal[
    "connection_failed",
    "not_connected",
    "auth_refused",
    "token_unavailable",
    "timeout",
    "outcome_unknown",
    "queue_full",
    "dropped",
    "messages_missed",
    "superseded",
    "insecure_url",
    "closed",
    "usage",
    "wrong_loop",
]
"""Codes that only the SDK raises."""

Code: TypeAlias = WireCode | ClientCode
"""Every known code."""

ErrorName: TypeAlias = Literal[
    "ProtocolError",
    "InvalidTopic",
    "InvalidPayload",
    "InvalidOption",
    "PayloadTooLarge",
    "AuthError",
    "TokenExpired",
    "PermissionDenied",
    "NotFound",
    "Conflict",
    "RateLimited",
    "ConnectionLimit",
    "LimitExceeded",
    "SlowConsumer",
    "ConnectionFailed",
    "Unsupported",
    "Unavailable",
    "AuthRefused",
    "OperationTimeout",
    "QueueFull",
    "MessagesMissed",
    "Superseded",
    "InsecureUrl",
    "ClosedError",
    "UsageError",
]
"""Names of the exception classes."""


class ErrorRecord(NamedTuple):
    """One row of the error table."""

    code: Code
    meaning: str
    remedy: str
    retryable: bool
    action: CloseAction
    """What a connection that this ended does next."""
    status: int | None
    """HTTP status, where the code has one."""
    close: int | None
    """WebSocket close code, where the code has one."""
    error: ErrorName
    """Name of the exception class."""
    scope: Literal["wire", "client"]


CODES: Final[dict[str, ErrorRecord]] = {
    "invalid_frame": ErrorRecord(
        code="invalid_frame",
        meaning="The frame or body is not valid JSON, or lacks or mistypes a field.",
        remedy="Compare it with spec/pubsub.schema.json; the message names the field.",
        retryable=False,
        action="retry",
        status=400,
        close=4400,
        error="ProtocolError",
        scope="wire",
    ),
    "invalid_topic": ErrorRecord(
        code="invalid_topic",
        meaning="The topic or pattern is not valid.",
        remedy="Use segments of letters, digits, `_` and `-` joined by dots, at most 255 bytes; `*` and `**` only as whole segments of a subscription.",
        retryable=False,
        action="retry",
        status=400,
        close=None,
        error="InvalidTopic",
        scope="wire",
    ),
    "invalid_payload": ErrorRecord(
        code="invalid_payload",
        meaning="The payload cannot be sent as JSON.",
        remedy="Send plain JSON: no NaN or infinity, no lone surrogates, integers within 64 bits.",
        retryable=False,
        action="retry",
        status=422,
        close=None,
        error="InvalidPayload",
        scope="wire",
    ),
    "invalid_option": ErrorRecord(
        code="invalid_option",
        meaning="A parameter or option has a wrong type or lies out of range.",
        remedy="Correct the field that the message names.",
        retryable=False,
        action="retry",
        status=400,
        close=None,
        error="InvalidOption",
        scope="wire",
    ),
    "payload_too_large": ErrorRecord(
        code="payload_too_large",
        meaning="The payload is over the limit of 256 KB.",
        remedy="Store the content elsewhere and publish a reference to it (HIP-56, Security 5).",
        retryable=False,
        action="retry",
        status=413,
        close=4413,
        error="PayloadTooLarge",
        scope="wire",
    ),
    "unauthenticated": ErrorRecord(
        code="unauthenticated",
        meaning="No valid token was presented.",
        remedy="Pass a token or a callback for it; the server answers nothing but `auth` before that.",
        retryable=False,
        action="reauth",
        status=401,
        close=4401,
        error="AuthError",
        scope="wire",
    ),
    "token_invalid": ErrorRecord(
        code="token_invalid",
        meaning="The token is malformed, forged, for another audience, or its key is unknown.",
        remedy="Get a new token from the issuer that the server trusts.",
        retryable=False,
        action="reauth",
        status=401,
        close=4401,
        error="AuthError",
        scope="wire",
    ),
    "token_expired": ErrorRecord(
        code="token_expired",
        meaning="The token has expired.",
        remedy="Pass a callback for tokens in place of a fixed token, so that the client can renew it.",
        retryable=False,
        action="reauth",
        status=401,
        close=4401,
        error="TokenExpired",
        scope="wire",
    ),
    "auth_timeout": ErrorRecord(
        code="auth_timeout",
        meaning="No `auth` frame came in time after the connection opened.",
        remedy="Send `auth` within five seconds of opening the socket (HIP-56, Security 1).",
        retryable=True,
        action="retry",
        status=401,
        close=4401,
        error="AuthError",
        scope="wire",
    ),
    "forbidden": ErrorRecord(
        code="forbidden",
        meaning="The access rules do not allow this identity to do that.",
        remedy="Ask for access, or check with `hanzo-pubsub doctor --topic TOPIC` which rule decides.",
        retryable=False,
        action="stop",
        status=403,
        close=4403,
        error="PermissionDenied",
        scope="wire",
    ),
    "not_found": ErrorRecord(
        code="not_found",
        meaning="There is nothing at this address.",
        remedy="Check the name, and that the URL is the one of the HTTP port.",
        retryable=False,
        action="retry",
        status=404,
        close=None,
        error="NotFound",
        scope="wire",
    ),
    "conflict": ErrorRecord(
        code="conflict",
        meaning="The id was used before for another payload.",
        remedy="Use one id for one message; retry a message unchanged.",
        retryable=False,
        action="retry",
        status=409,
        close=None,
        error="Conflict",
        scope="wire",
    ),
    "rate_limited": ErrorRecord(
        code="rate_limited",
        meaning="More publishes a second than allowed.",
        remedy="Wait as long as the error says, publish in batches, or coalesce.",
        retryable=True,
        action="retry",
        status=429,
        close=None,
        error="RateLimited",
        scope="wire",
    ),
    "connection_limit": ErrorRecord(
        code="connection_limit",
        meaning="Too many connections of this user or organization.",
        remedy="Close idle connections, or share one client.",
        retryable=True,
        action="retry",
        status=429,
        close=4429,
        error="ConnectionLimit",
        scope="wire",
    ),
    "subscription_limit": ErrorRecord(
        code="subscription_limit",
        meaning="Too many subscriptions on one connection.",
        remedy="Subscribe to a pattern with `*` or `**` in place of many topics.",
        retryable=False,
        action="retry",
        status=429,
        close=None,
        error="LimitExceeded",
        scope="wire",
    ),
    "slow_consumer": ErrorRecord(
        code="slow_consumer",
        meaning="The client read too slowly and its queue on the server was full.",
        remedy="Read faster, subscribe to less, or move work out of the reader; what was missed is replayed from history.",
        retryable=True,
        action="retry",
        status=None,
        close=4500,
        error="SlowConsumer",
        scope="wire",
    ),
    "idle_timeout": ErrorRecord(
        code="idle_timeout",
        meaning="The client sent nothing for 30 seconds, or its program sent no frame for two minutes while its socket still answered.",
        remedy="Let the client send its pings; check for a program that hangs, or a suspended process or machine.",
        retryable=True,
        action="retry",
        status=None,
        close=4408,
        error="ConnectionFailed",
        scope="wire",
    ),
    "unsupported": ErrorRecord(
        code="unsupported",
        meaning="The server does not know this frame type or feature.",
        remedy="Check the `features` of `auth.ok`.",
        retryable=False,
        action="retry",
        status=400,
        close=None,
        error="Unsupported",
        scope="wire",
    ),
    "unavailable": ErrorRecord(
        code="unavailable",
        meaning="The server cannot do this at the moment.",
        remedy="Try again, as late as the error says.",
        retryable=True,
        action="retry",
        status=503,
        close=1013,
        error="Unavailable",
        scope="wire",
    ),
    "going_away": ErrorRecord(
        code="going_away",
        meaning="The server is shutting down.",
        remedy="The client reconnects by itself.",
        retryable=True,
        action="retry",
        status=503,
        close=1001,
        error="ConnectionFailed",
        scope="wire",
    ),
    "internal": ErrorRecord(
        code="internal",
        meaning="The server failed.",
        remedy="Try again; look into the server's log for this time.",
        retryable=True,
        action="retry",
        status=500,
        close=1011,
        error="Unavailable",
        scope="wire",
    ),
    "connection_failed": ErrorRecord(
        code="connection_failed",
        meaning="The server could not be reached.",
        remedy="Check the URL and the network; `hanzo-pubsub doctor` finds the first cause.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="ConnectionFailed",
        scope="client",
    ),
    "not_connected": ErrorRecord(
        code="not_connected",
        meaning="There is no connection for this operation.",
        remedy="Wait for the state `connected`, or use the REST form of the operation.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="ConnectionFailed",
        scope="client",
    ),
    "auth_refused": ErrorRecord(
        code="auth_refused",
        meaning="The token callback refused to give a token.",
        remedy="Log in again and build a new client.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="AuthRefused",
        scope="client",
    ),
    "token_unavailable": ErrorRecord(
        code="token_unavailable",
        meaning="The token callback failed.",
        remedy="Mend the callback, see the cause; an AuthRefused out of it ends the client.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="AuthError",
        scope="client",
    ),
    "timeout": ErrorRecord(
        code="timeout",
        meaning="No answer came in time; whether the operation took effect is unknown where `outcome_unknown` says so.",
        remedy="Try again with the same message id; the server publishes an id once.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="OperationTimeout",
        scope="client",
    ),
    "outcome_unknown": ErrorRecord(
        code="outcome_unknown",
        meaning="The connection ended after the message was sent and before the answer came.",
        remedy="Publish again with the same message id; the server publishes an id once.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="OperationTimeout",
        scope="client",
    ),
    "queue_full": ErrorRecord(
        code="queue_full",
        meaning="The queue of unsent publishes is full.",
        remedy="Await each publish, raise `send_queue`, or choose the policy `block`, `drop_oldest` or `latest`.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="QueueFull",
        scope="client",
    ),
    "dropped": ErrorRecord(
        code="dropped",
        meaning="The message was dropped from the full queue of unsent publishes, as its policy says.",
        remedy="Choose the policy `block` to lose nothing.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="QueueFull",
        scope="client",
    ),
    "messages_missed": ErrorRecord(
        code="messages_missed",
        meaning="Messages of a topic cannot be delivered any more.",
        remedy="Load the state that the missing messages led to, then iterate again for those that follow.",
        retryable=False,
        action="retry",
        status=None,
        close=None,
        error="MessagesMissed",
        scope="client",
    ),
    "superseded": ErrorRecord(
        code="superseded",
        meaning="A newer message with the same key took its place before it was sent.",
        remedy="None is needed: this is the policy `latest`.",
        retryable=False,
        action="retry",
        status=None,
        close=None,
        error="Superseded",
        scope="client",
    ),
    "insecure_url": ErrorRecord(
        code="insecure_url",
        meaning="A token would be sent over an unencrypted connection.",
        remedy="Use wss:// or https://, or pass `allow_insecure=True` on a trusted network.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="InsecureUrl",
        scope="client",
    ),
    "closed": ErrorRecord(
        code="closed",
        meaning="The client is closed.",
        remedy="Build a new client.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="ClosedError",
        scope="client",
    ),
    "usage": ErrorRecord(
        code="usage",
        meaning="The client is used in a way it cannot work.",
        remedy="Change the program as the message says.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="UsageError",
        scope="client",
    ),
    "wrong_loop": ErrorRecord(
        code="wrong_loop",
        meaning="The client is used in another event loop than the one it runs in.",
        remedy="Use one client a loop, or the blocking client `PubSub`.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="UsageError",
        scope="client",
    ),
}
"""Error records by code."""


class CloseRange(NamedTuple):
    """Close codes from `first` to `last`, both included, and what follows from them."""

    first: int
    last: int
    action: CloseAction
    meaning: str


CLOSE_CODES: Final[tuple[CloseRange, ...]] = (
    CloseRange(
        1000, 1000, "retry", "Closed normally by the server, though the client did not ask."
    ),
    CloseRange(1001, 1001, "retry", "The server goes away."),
    CloseRange(1002, 1002, "retry", "Protocol error."),
    CloseRange(1003, 1003, "stop", "The server does not take this kind of data."),
    CloseRange(1004, 1006, "retry", "The connection was lost."),
    CloseRange(1007, 1007, "retry", "Inconsistent data."),
    CloseRange(
        1008, 1008, "reauth", "Policy violation; many gateways say it for a missing or bad token."
    ),
    CloseRange(1009, 1009, "retry", "A frame was too large."),
    CloseRange(1010, 1010, "stop", "The server lacks an extension."),
    CloseRange(1011, 1015, "retry", "The server failed, restarts, is overloaded, or TLS failed."),
    CloseRange(1016, 2999, "retry", "Reserved."),
    CloseRange(3000, 3000, "reauth", "Unauthorized (IANA registry)."),
    CloseRange(3001, 3002, "retry", "Registered elsewhere."),
    CloseRange(3003, 3003, "stop", "Forbidden (IANA registry)."),
    CloseRange(3004, 3999, "retry", "Registered elsewhere."),
    CloseRange(4000, 4399, "retry", "Unknown to this protocol."),
    CloseRange(4400, 4400, "retry", "The server could not read what was sent."),
    CloseRange(4401, 4401, "reauth", "Authentication failed, timed out or ran out."),
    CloseRange(4402, 4402, "retry", "Unknown to this protocol."),
    CloseRange(4403, 4403, "stop", "Forbidden."),
    CloseRange(4404, 4407, "retry", "Unknown to this protocol."),
    CloseRange(4408, 4408, "retry", "Nothing was heard from the client for too long."),
    CloseRange(
        4409,
        4409,
        "stop",
        "Another connection took this one's place; the first time since a stable connection, the client reconnects.",
    ),
    CloseRange(4410, 4412, "retry", "Unknown to this protocol."),
    CloseRange(4413, 4413, "retry", "A frame was too large."),
    CloseRange(4414, 4428, "retry", "Unknown to this protocol."),
    CloseRange(4429, 4429, "retry", "A limit was exceeded."),
    CloseRange(4430, 4499, "retry", "Unknown to this protocol."),
    CloseRange(4500, 4500, "retry", "The client read too slowly."),
    CloseRange(4501, 4999, "retry", "Unknown to this protocol."),
)
"""Ranges of close codes in ascending order; they cover 1000 to 4999 without a hole."""

_FIRSTS: Final = tuple(row.first for row in CLOSE_CODES)


def close_range(code: int | None) -> CloseRange:
    """The row for a close code; none, or one outside 1000-4999, counts as 1006."""
    if code is None or not 1000 <= code <= 4999:
        code = 1006
    return CLOSE_CODES[bisect_right(_FIRSTS, code) - 1]


def close_action(code: int | None) -> CloseAction:
    """What a client does after its socket closed with this code."""
    return close_range(code).action
