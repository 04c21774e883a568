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
    "schema",
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
    "request_timeout",
    "responder_failed",
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
    "SchemaError",
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
    "RequestTimeout",
    "ReplyError",
    "QueueFull",
    "MessagesMissed",
    "Superseded",
    "InsecureUrl",
    "ClosedError",
    "UsageError",
]
"""Names of the exception classes."""


PAGE: Final = "https://pubsub.hanzo.ai/docs/errors/"
"""Address of the page that describes the codes; each has an anchor."""


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
        meaning="The frame or body is not valid JSON, or a field is missing or has the wrong type.",
        remedy="Correct the field that the message names; https://pubsub.hanzo.ai/docs/wire/ describes every field.",
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
        remedy="Use letters, digits, `_` and `-` in segments joined by dots, at most 255 bytes. Use `*` and `**` only in subscriptions, as whole segments.",
        retryable=False,
        action="retry",
        status=400,
        close=None,
        error="InvalidTopic",
        scope="wire",
    ),
    "invalid_payload": ErrorRecord(
        code="invalid_payload",
        meaning="The payload cannot be encoded as JSON.",
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
        meaning="A parameter or option has the wrong type or is out of range.",
        remedy="Correct the field that the message names.",
        retryable=False,
        action="retry",
        status=400,
        close=None,
        error="InvalidOption",
        scope="wire",
    ),
    "schema": ErrorRecord(
        code="schema",
        meaning="The payload does not match the schema of its topic.",
        remedy="Correct the field that the message names, or use one version of the schema on both sides.",
        retryable=False,
        action="retry",
        status=422,
        close=None,
        error="SchemaError",
        scope="wire",
    ),
    "payload_too_large": ErrorRecord(
        code="payload_too_large",
        meaning="The payload is larger than the server allows, which is 256 KB by default.",
        remedy="Store the content elsewhere and publish a reference to it.",
        retryable=False,
        action="retry",
        status=413,
        close=4413,
        error="PayloadTooLarge",
        scope="wire",
    ),
    "unauthenticated": ErrorRecord(
        code="unauthenticated",
        meaning="The request has no valid token.",
        remedy="Pass a token, or a callback that returns one. Before that, the server accepts only `auth`.",
        retryable=False,
        action="reauth",
        status=401,
        close=4401,
        error="AuthError",
        scope="wire",
    ),
    "token_invalid": ErrorRecord(
        code="token_invalid",
        meaning="The token is malformed, has a wrong signature or audience, or its key is unknown.",
        remedy="Get a new token from an issuer that the server trusts.",
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
        remedy="Pass a callback that returns a new token before the old one expires.",
        retryable=False,
        action="reauth",
        status=401,
        close=4401,
        error="TokenExpired",
        scope="wire",
    ),
    "auth_timeout": ErrorRecord(
        code="auth_timeout",
        meaning="The client did not send `auth` in time after it opened the connection.",
        remedy="Send `auth` within five seconds of opening the socket.",
        retryable=True,
        action="retry",
        status=401,
        close=4401,
        error="AuthError",
        scope="wire",
    ),
    "forbidden": ErrorRecord(
        code="forbidden",
        meaning="The access rules do not allow this identity to do this.",
        remedy="Ask for access, or run `hanzo-pubsub doctor --topic TOPIC` to see which rule decides.",
        retryable=False,
        action="stop",
        status=403,
        close=4403,
        error="PermissionDenied",
        scope="wire",
    ),
    "not_found": ErrorRecord(
        code="not_found",
        meaning="This address does not exist.",
        remedy="Check the path, and that the URL points to the HTTP port.",
        retryable=False,
        action="retry",
        status=404,
        close=None,
        error="NotFound",
        scope="wire",
    ),
    "conflict": ErrorRecord(
        code="conflict",
        meaning="The message id was already used for a different payload.",
        remedy="Use one id for one message, and retry a message unchanged.",
        retryable=False,
        action="retry",
        status=409,
        close=None,
        error="Conflict",
        scope="wire",
    ),
    "rate_limited": ErrorRecord(
        code="rate_limited",
        meaning="You publish more messages per second than the limit allows.",
        remedy="Wait for the time that the error states, publish in batches, or coalesce messages.",
        retryable=True,
        action="retry",
        status=429,
        close=None,
        error="RateLimited",
        scope="wire",
    ),
    "connection_limit": ErrorRecord(
        code="connection_limit",
        meaning="This user or organization has too many open connections.",
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
        meaning="The connection has too many subscriptions.",
        remedy="Subscribe to a pattern with `*` or `**` instead of many topics.",
        retryable=False,
        action="retry",
        status=429,
        close=None,
        error="LimitExceeded",
        scope="wire",
    ),
    "slow_consumer": ErrorRecord(
        code="slow_consumer",
        meaning="The client read too slowly, and its queue on the server was full.",
        remedy="Read faster, subscribe to fewer topics, or move work out of the reader. The server replays missed messages from history.",
        retryable=True,
        action="retry",
        status=None,
        close=4500,
        error="SlowConsumer",
        scope="wire",
    ),
    "idle_timeout": ErrorRecord(
        code="idle_timeout",
        meaning="The client sent nothing for too long: by default, no byte for 30 seconds, or no frame for two minutes.",
        remedy="Look for a program that hangs, or for a suspended process or machine.",
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
        meaning="The server cannot process the request now.",
        remedy="Try again after the time that the error states.",
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
        remedy="No action is needed: the client reconnects.",
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
        remedy="Try again. Search the server log for this time.",
        retryable=True,
        action="retry",
        status=500,
        close=1011,
        error="Unavailable",
        scope="wire",
    ),
    "connection_failed": ErrorRecord(
        code="connection_failed",
        meaning="The client could not reach the server.",
        remedy="Check the URL and the network, and that the server is running. `hanzo-pubsub doctor` finds the first cause.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="ConnectionFailed",
        scope="client",
    ),
    "not_connected": ErrorRecord(
        code="not_connected",
        meaning="The operation needs a connection, and the client is not connected.",
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
        meaning="The token callback refused to return a token.",
        remedy="Log in again and create a new client.",
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
        remedy="Fix the callback, or the server that it calls; the error's cause has the details. AuthRefused stops the client.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="AuthError",
        scope="client",
    ),
    "timeout": ErrorRecord(
        code="timeout",
        meaning="The server did not answer in time. If `outcome_unknown` is set, the operation may have taken effect.",
        remedy="Try again with the same message id: the server publishes an id only once.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="OperationTimeout",
        scope="client",
    ),
    "outcome_unknown": ErrorRecord(
        code="outcome_unknown",
        meaning="The connection was lost after the message was sent and before the server answered.",
        remedy="Publish again with the same message id: the server publishes an id only once.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="OperationTimeout",
        scope="client",
    ),
    "request_timeout": ErrorRecord(
        code="request_timeout",
        meaning="No reply arrived within the timeout of the request.",
        remedy="Check that a responder is subscribed to the topic, then try again with the same request id.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="RequestTimeout",
        scope="client",
    ),
    "responder_failed": ErrorRecord(
        code="responder_failed",
        meaning="The responder failed to answer the request.",
        remedy="Search the log of the responder for the request id.",
        retryable=False,
        action="retry",
        status=None,
        close=None,
        error="ReplyError",
        scope="client",
    ),
    "queue_full": ErrorRecord(
        code="queue_full",
        meaning="The queue of unsent messages is full.",
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
        meaning="The policy of the send queue dropped the message because the queue was full.",
        remedy="Choose the policy `block` to keep every message.",
        retryable=True,
        action="retry",
        status=None,
        close=None,
        error="QueueFull",
        scope="client",
    ),
    "messages_missed": ErrorRecord(
        code="messages_missed",
        meaning="The server can no longer deliver some messages of a topic.",
        remedy="Load the current state from your own storage, then continue to iterate for the messages that follow.",
        retryable=False,
        action="retry",
        status=None,
        close=None,
        error="MessagesMissed",
        scope="client",
    ),
    "superseded": ErrorRecord(
        code="superseded",
        meaning="A newer message with the same key replaced this one before it was sent.",
        remedy="No action is needed: this is what the policy `latest` does.",
        retryable=False,
        action="retry",
        status=None,
        close=None,
        error="Superseded",
        scope="client",
    ),
    "insecure_url": ErrorRecord(
        code="insecure_url",
        meaning="The client would send a token over an unencrypted connection.",
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
        remedy="Create a new client.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="ClosedError",
        scope="client",
    ),
    "usage": ErrorRecord(
        code="usage",
        meaning="The program uses the client in a way that cannot work.",
        remedy="Change the program as the message describes.",
        retryable=False,
        action="stop",
        status=None,
        close=None,
        error="UsageError",
        scope="client",
    ),
    "wrong_loop": ErrorRecord(
        code="wrong_loop",
        meaning="The client is used in a different event loop than the one it runs in.",
        remedy="Use one client per event loop, or the blocking client `PubSub`.",
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
        1000,
        1000,
        "retry",
        "The server closed the connection normally, and the client had not asked for it.",
    ),
    CloseRange(1001, 1001, "retry", "The server is shutting down."),
    CloseRange(1002, 1002, "retry", "Protocol error."),
    CloseRange(1003, 1003, "stop", "The server does not accept this type of data."),
    CloseRange(1004, 1006, "retry", "The connection was lost."),
    CloseRange(1007, 1007, "retry", "Inconsistent data."),
    CloseRange(
        1008,
        1008,
        "reauth",
        "Policy violation; many gateways send it for a missing or invalid token.",
    ),
    CloseRange(1009, 1009, "retry", "A frame was too large."),
    CloseRange(1010, 1010, "stop", "The server does not support an extension."),
    CloseRange(1011, 1015, "retry", "The server failed, restarts or is overloaded, or TLS failed."),
    CloseRange(1016, 2999, "retry", "Reserved."),
    CloseRange(3000, 3000, "reauth", "Unauthorized (IANA registry)."),
    CloseRange(3001, 3002, "retry", "Registered for another purpose."),
    CloseRange(3003, 3003, "stop", "Forbidden (IANA registry)."),
    CloseRange(3004, 3999, "retry", "Registered for another purpose."),
    CloseRange(4000, 4399, "retry", "Not used by this protocol."),
    CloseRange(4400, 4400, "retry", "The server could not parse a frame of the client."),
    CloseRange(4401, 4401, "reauth", "Authentication failed or timed out, or the token expired."),
    CloseRange(4402, 4402, "retry", "Not used by this protocol."),
    CloseRange(4403, 4403, "stop", "Forbidden."),
    CloseRange(4404, 4407, "retry", "Not used by this protocol."),
    CloseRange(4408, 4408, "retry", "Idle timeout: the client sent nothing for too long."),
    CloseRange(
        4409,
        4409,
        "stop",
        "Another connection replaced this one. The client reconnects once, and stops if this happens again before a connection was stable.",
    ),
    CloseRange(4410, 4412, "retry", "Not used by this protocol."),
    CloseRange(4413, 4413, "retry", "A frame was too large."),
    CloseRange(4414, 4428, "retry", "Not used by this protocol."),
    CloseRange(4429, 4429, "retry", "A limit was exceeded."),
    CloseRange(4430, 4499, "retry", "Not used by this protocol."),
    CloseRange(4500, 4500, "retry", "The client read too slowly."),
    CloseRange(4501, 4999, "retry", "Not used by this protocol."),
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
