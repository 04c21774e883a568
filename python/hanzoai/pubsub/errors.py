"""Every exception of the SDK.

    PubSubError                      code, message, remedy, retryable, topic, field, retry_after,
                                     docs
    ├── ConnectionFailed             also a ConnectionError
    ├── OperationTimeout             also a TimeoutError; outcome_unknown, id
    │   └── RequestTimeout           no reply to a request
    ├── ReplyError                   the error of a responder; raise it there; data
    ├── AuthError                    no token, or one that the server does not accept
    │   ├── TokenExpired
    │   └── AuthRefused              raise it in `get_token` to stop permanently
    ├── PermissionDenied
    ├── LimitExceeded
    │   └── ConnectionLimit
    ├── RateLimited                  retry_after
    ├── SlowConsumer
    ├── MessagesMissed               `on_gap="raise"`: messages can no longer be delivered; gap
    ├── QueueFull                    the bounded queue of unsent publishes
    ├── Superseded                   policy `latest`: a newer message took its place
    ├── InvalidTopic                 also a ValueError
    ├── InvalidPayload               also a ValueError
    ├── SchemaError                  also a ValueError; id: a payload that its schema does not allow
    ├── PayloadTooLarge              also a ValueError; size, limit
    ├── InvalidOption                also a ValueError; field
    │   └── InsecureUrl
    ├── NotFound
    ├── Conflict
    ├── ProtocolError
    ├── Unsupported
    ├── Unavailable
    ├── ClosedError
    └── UsageError                   also a RuntimeError

`code` is one of `spec/errors.yaml`, or one of a later server; meaning, remedy and `retryable` come
from there. Every class but `PubSubError` itself knows its usual code, so that
`InvalidTopic("a..b has an empty segment")` needs no code. `from_code` builds the class that belongs
to a code. All of them can be pickled, without their `__cause__`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from hanzoai.pubsub.generated.errors import CODES, PAGE

if TYPE_CHECKING:
    from hanzoai.pubsub.gap import Gap

_MESSAGE_MAX = 2_000
"""Maximum characters of a message, because texts of a server are displayed and logged."""

_WORDS = re.compile(r"[^\w.*-]+|\.(?![\w*-])")
"""Separators of words and topics in a message."""


def names(message: str, topic: str) -> bool:
    """Whether a message names a topic; as a part of a longer word, it does not count."""
    return topic in _WORDS.split(message)


class PubSubError(Exception):
    """Base class of all errors of Hanzo PubSub.

    Attributes:
        code: Identifies the problem for programs; `spec/errors.yaml` lists all codes.
        message: Description of the problem.
        remedy: How to fix it; empty for a code that this version does not know.
        retryable: Whether the same call may succeed later.
        topic: The topic or pattern that it is about.
        field: The invalid option, parameter or member of the payload.
        retry_after: Earliest time to try again, in seconds from when it was raised.

    ``str(error)`` is the message, the remedy, and the address of the page that describes the code.
    """

    code: str
    message: str
    remedy: str
    retryable: bool
    topic: str | None
    field: str | None
    retry_after: float | None

    _names_topic: ClassVar[bool] = False
    """Whether the message names the topic, even if the text of the server does not."""

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
    ) -> None:
        known = CODES.get(code)
        self.code = code
        message = message or (known.meaning if known else f"Error `{code}`.")
        if self._names_topic and topic is not None and not names(message, topic):
            message = f"{message.removesuffix('.')} (topic {topic})."
        self.message = _shorten(message)
        self.remedy = _shorten(remedy if remedy is not None else known.remedy if known else "")
        self.retryable = known.retryable if known else False
        self.topic = topic
        self.field = field
        self.retry_after = retry_after
        super().__init__(self.message)
        if cause is not None:
            self.__cause__ = cause

    @property
    def docs(self) -> str:
        """Address of the description of the code; empty if this version does not know it."""
        return f"{PAGE}#{self.code}" if self.code in CODES else ""

    def __str__(self) -> str:
        if not self.remedy:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?")) else "."
        link = f" See {self.docs}" if self.docs else ""
        return f"{self.message}{stop} {self.remedy}{link}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code!r}, message={self.message!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__.copy())


class _CodedError(PubSubError):
    """An error whose class determines the code, so that the message comes first."""

    usual_code: ClassVar[str]

    def __init_subclass__(cls, code: str | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.usual_code = code

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(
            code or self.usual_code,
            message,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )


class ConnectionFailed(_CodedError, ConnectionError, code="connection_failed"):
    """The server could not be reached, or the connection ended."""


class OperationTimeout(_CodedError, TimeoutError, code="timeout"):
    """No answer arrived in time, or the connection was lost before it.

    Attributes:
        outcome_unknown: Whether the operation may have taken effect.
        id: The message id of a publish. You can publish again with it if the server supports
            `idempotency`.
    """

    outcome_unknown: bool
    id: str | None

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
        outcome_unknown: bool | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
        self.outcome_unknown = (
            self.code == "outcome_unknown" if outcome_unknown is None else outcome_unknown
        )
        self.id = id


class RequestTimeout(OperationTimeout, code="request_timeout"):
    """No reply arrived within the timeout of a request; `id` is the id of the request."""


class ReplyError(_CodedError, code="responder_failed"):
    """The error with which a responder answers a request.

    Raise it in the handler of `respond` with your own `code`; `request` then raises it with the
    same code, message and data. The code `responder_failed` represents any other exception of the
    handler.

    Attributes:
        data: JSON that the responder added, or None.
    """

    data: Any

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
        self.data = data


class AuthError(_CodedError, code="unauthenticated"):
    """No valid token was presented."""


class TokenExpired(AuthError, code="token_expired"):
    """The token has expired and cannot be renewed."""


class AuthRefused(AuthError, code="auth_refused"):
    """The token callback refuses to return a token: raise it there to stop the client."""


class PermissionDenied(_CodedError, code="forbidden"):
    """The access rules do not allow this operation; the message names the topic."""

    _names_topic = True


class LimitExceeded(_CodedError, code="subscription_limit"):
    """A limit of the server was exceeded."""


class ConnectionLimit(LimitExceeded, code="connection_limit"):
    """Too many connections of this user or organization."""


class RateLimited(_CodedError, code="rate_limited"):
    """More publishes per second than allowed; see `retry_after`."""


class SlowConsumer(_CodedError, code="slow_consumer"):
    """The client read too slowly for the server's queue."""


class MessagesMissed(_CodedError, code="messages_missed"):
    """Messages of a topic can no longer be delivered.

    An iteration raises it if `subscribe` was called with `on_gap="raise"`. The subscription
    continues: iterate again to receive the messages after the gap.

    Attributes:
        gap: The missing messages, and the reason.
    """

    gap: Gap

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
        gap: Gap | None = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
        if gap is None:
            # A server may send this code, without a gap.
            from hanzoai.pubsub.gap import Gap as Unknown

            gap = Unknown(topic or "", None, None, None, "unproven")
        self.gap = gap


class QueueFull(_CodedError, code="queue_full"):
    """The bounded queue of unsent publishes is full, or its policy dropped this message."""


class Superseded(_CodedError, code="superseded"):
    """A newer message with the same key replaced this one before it was sent."""


class InvalidTopic(_CodedError, ValueError, code="invalid_topic"):
    """A topic or pattern is not valid."""


class InvalidPayload(_CodedError, ValueError, code="invalid_payload"):
    """The payload cannot be sent as JSON; `field` is the path of the invalid member."""


class SchemaError(_CodedError, ValueError, code="schema"):
    """A payload does not match the model or the contract of its topic.

    `topic` names the topic, and `field` is the path of the first invalid member, such as
    `data.items[0].sku`. A publish raises it before anything is sent. An iteration raises it instead
    of the message; iterate again to continue after the message.

    Attributes:
        id: Id of the message that was received; None for one that was not published.
    """

    id: str | None

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
        self.id = id


class PayloadTooLarge(_CodedError, ValueError, code="payload_too_large"):
    """The payload is larger than the limit.

    Attributes:
        size: Bytes of the JSON-encoded `data`, if known.
        limit: Maximum bytes, if known.
    """

    size: int | None
    limit: int | None

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        remedy: str | None = None,
        topic: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        cause: BaseException | None = None,
        size: int | None = None,
        limit: int | None = None,
    ) -> None:
        if message is None and size is not None and limit is not None:
            message = f"The payload has {size:,} bytes of JSON; the limit is {limit:,}."
        super().__init__(
            message,
            code=code,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
        self.size = size
        self.limit = limit


class InvalidOption(_CodedError, ValueError, code="invalid_option"):
    """An option or parameter has a wrong type or value; `field` names it."""


class InsecureUrl(InvalidOption, code="insecure_url"):
    """A token would be sent over an unencrypted connection."""


class NotFound(_CodedError, code="not_found"):
    """The address does not exist."""


class Conflict(_CodedError, code="conflict"):
    """The message id was already used for a different payload."""


class ProtocolError(_CodedError, code="invalid_frame"):
    """One side sent something that the other cannot read."""


class Unsupported(_CodedError, code="unsupported"):
    """The server does not know this frame type or feature."""


class Unavailable(_CodedError, code="unavailable"):
    """The server cannot do this now."""


class ClosedError(_CodedError, code="closed"):
    """The client is closed."""


class UsageError(_CodedError, RuntimeError, code="usage"):
    """The program uses the client in a way that cannot work."""


class MissingPackage(UsageError, ImportError):
    """A module needs a package that is not installed.

    It is also an ``ImportError``: tools that import every module of a package, and
    ``try: import ... except ImportError``, expect that one.
    """


CLASSES: dict[str, type[_CodedError]] = {
    cls.__name__: cls
    for cls in (
        ConnectionFailed,
        OperationTimeout,
        RequestTimeout,
        ReplyError,
        AuthError,
        TokenExpired,
        AuthRefused,
        PermissionDenied,
        LimitExceeded,
        ConnectionLimit,
        RateLimited,
        SlowConsumer,
        MessagesMissed,
        QueueFull,
        Superseded,
        InvalidTopic,
        InvalidPayload,
        SchemaError,
        PayloadTooLarge,
        InvalidOption,
        InsecureUrl,
        NotFound,
        Conflict,
        ProtocolError,
        Unsupported,
        Unavailable,
        ClosedError,
        UsageError,
    )
}
"""Exception class by the name that `spec/errors.yaml` gives it."""


def from_code(
    code: str,
    message: str | None = None,
    *,
    remedy: str | None = None,
    topic: str | None = None,
    field: str | None = None,
    retry_after: float | None = None,
    cause: BaseException | None = None,
) -> PubSubError:
    """Build the exception that belongs to a code.

    Args:
        code: A code of `spec/errors.yaml`; any other gives a plain `PubSubError`, which is not
            retryable.
        message: The problem; default: the meaning of the code.
        remedy: How to fix it; default: the remedy of the code.
        topic: The topic or pattern that it is about.
        field: The invalid option or parameter.
        retry_after: Earliest time to try again, in seconds from now.
        cause: The exception that caused it.
    """
    known = CODES.get(code)
    found = CLASSES.get(known.error) if known else None
    if found is None:
        return PubSubError(
            code,
            message,
            remedy=remedy,
            topic=topic,
            field=field,
            retry_after=retry_after,
            cause=cause,
        )
    return found(
        message,
        code=code,
        remedy=remedy,
        topic=topic,
        field=field,
        retry_after=retry_after,
        cause=cause,
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}…"


def _restore(
    cls: type[PubSubError], args: tuple[object, ...], state: dict[str, object]
) -> PubSubError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error
