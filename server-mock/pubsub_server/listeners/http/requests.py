"""The content of an HTTP request: token, query and body. Errors name the field."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.http.request_ids import CALLER
from pubsub_server.shared import codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from pubsub_server.interfaces import Caller, Identity
    from pubsub_server.listeners.http.connection import HttpConnection
    from pubsub_server.service import Service

MAX_INTEGER: Final = 2**53 - 1

_TOKEN_PARAMETERS: Final = ("token", "access_token", "api_key", "apikey", "authorization", "auth")
_BEARER: Final = re.compile(r"(?:bearer\s+)?([\x21-\x7e]+)", re.IGNORECASE | re.ASCII)
_INTEGER: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_TRUTH: Final = {"1": True, "true": True, "0": False, "false": False}


def connection(request: web.BaseRequest) -> HttpConnection:
    """The connection of a request."""
    return cast("HttpConnection", request.protocol)


def caller(request: web.Request) -> Caller | None:
    """The origin of a request; None outside of the listener."""
    return request.get(CALLER)


async def identify(service: Service, request: web.Request) -> Identity:
    """The identity of a request's token.

    Raises:
        ServiceError: `unauthenticated`, `token_invalid`, `token_expired`, `connection_limit` or
            `unavailable`.
    """
    identity = await service.identify(token(request), caller(request))
    connection(request).authenticated(identity)
    return identity


async def identify_reader(service: Service, request: web.Request) -> Identity:
    """Like `identify`, before a response that may be large.

    Raises:
        ServiceError: Also `connection_limit`, if too many bytes wait for this user.
    """
    identity = await identify(service, request)
    connection(request).expect_large()
    return identity


def token(request: web.BaseRequest) -> str:
    """The token of the header `Authorization`.

    Raises:
        ServiceError: `unauthenticated`; with a hint if a token is in the URL, which is never
            accepted, because URLs end up in logs.
    """
    values = request.headers.getall("Authorization", [])
    if len(values) > 1:
        raise ServiceError(
            "unauthenticated", "there is more than one Authorization header", field="Authorization"
        )
    if values:
        match = _BEARER.fullmatch(values[0].strip())
        if match:
            return match[1]
        raise ServiceError(
            "unauthenticated",
            "the header Authorization is not `Bearer TOKEN`",
            field="Authorization",
        )
    for name in _TOKEN_PARAMETERS:
        if name in request.query:
            raise ServiceError(
                "unauthenticated",
                f"a token in the address (`{name}`) is not accepted, because addresses end up in "
                "logs; send the header `Authorization: Bearer TOKEN`",
                field=name,
            )
    raise ServiceError(
        "unauthenticated", "the header `Authorization: Bearer TOKEN` is missing",
        field="Authorization",
    )  # fmt: skip


def topic(request: web.Request) -> str:
    """The topic of the path.

    Raises:
        ServiceError: `invalid_topic`.
    """
    name = request.match_info["topic"]
    try:
        return validate_topic(name)
    except InvalidTopic as error:
        raise ServiceError(
            "invalid_topic", error.message, topic=name[:255], field="topic"
        ) from None


def text(request: web.BaseRequest, name: str, limit: int = 256) -> str | None:
    """One parameter of the query, or None.

    Raises:
        ServiceError: `invalid_option` if it occurs twice or is too long.
    """
    values = request.query.getall(name, [])
    if not values:
        return None
    if len(values) > 1:
        raise ServiceError(
            "invalid_option",
            f"`{name}` occurs {len(values)} times",
            field=name,
            remedy=f"Give `{name}` once.",
        )
    if len(values[0]) > limit:
        raise ServiceError(
            "invalid_option",
            f"`{name}` is longer than {limit} characters",
            field=name,
            remedy=f"Give at most {limit} characters.",
        )
    return values[0]


def missing(name: str) -> ServiceError:
    """A required parameter of the query."""
    return ServiceError(
        "invalid_option",
        f"`{name}` is missing",
        field=name,
        remedy=f"Add it to the address: `?{name}=chat.session.abc`.",
    )


def integer(
    request: web.BaseRequest, name: str, low: int = 0, high: int = MAX_INTEGER
) -> int | None:
    """An integer parameter of the query, or None.

    Raises:
        ServiceError: `invalid_option` for anything else, naming the range.
    """
    value = text(request, name)
    if value is None:
        return None
    number = int(value) if _INTEGER.fullmatch(value) else None
    if number is None or not low <= number <= high:
        raise ServiceError(
            "invalid_option",
            f"`{name}` must be a whole number from {low} to {high}",
            field=name,
            remedy=f"Give such a number, or leave `{name}` out.",
        )
    return number


def flag(request: web.BaseRequest, name: str) -> bool | None:
    """A boolean parameter of the query, or None.

    Raises:
        ServiceError: `invalid_option` for anything but 1, 0, true, false.
    """
    value = text(request, name)
    if value is None:
        return None
    if value.lower() not in _TRUTH:
        raise ServiceError(
            "invalid_option",
            f"`{name}` is true or false",
            field=name,
            remedy=f"Give 1, 0, true or false, or leave `{name}` out.",
        )
    return _TRUTH[value.lower()]


class UnsupportedMedia(ServiceError):
    """The content type of the body is not JSON; HTTP 415."""


async def json_object(
    request: web.BaseRequest,
    limit: int,
    seconds: float,
    turn: Callable[[int], Awaitable[None]] | None = None,
) -> Mapping[str, object]:
    """The body, a JSON object.

    Args:
        request: The request.
        limit: Maximum bytes of the body.
        seconds: Maximum seconds for the body to arrive.
        turn: Called with the size of the body, to wait before it is parsed.

    Raises:
        ServiceError: `invalid_frame`, `payload_too_large`; `UnsupportedMedia` for a body of
            another type.
    """
    # `request.content_type` also parses the parameters, which takes seconds for thousands of them.
    media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        raise UnsupportedMedia(
            "unsupported", "the body is not of type application/json", field="Content-Type"
        )
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMedia(
            "unsupported", "encoded bodies are not accepted", field="Content-Encoding"
        )
    body = await _read(request, limit, seconds)
    if turn is not None:
        await turn(len(body))
    return codec.parse(body)


async def _read(request: web.BaseRequest, limit: int, seconds: float) -> bytes:
    length = request.content_length
    if length is not None and length > limit:
        raise _too_large(limit)
    if request.content.is_eof():
        whole = request.content.read_nowait()
        if len(whole) > limit:
            raise _too_large(limit)
        return whole
    received = bytearray()
    carrier = connection(request)
    try:
        async with asyncio.timeout(seconds):
            while chunk := await request.content.readany():
                received += chunk
                if len(received) > limit:
                    raise _too_large(limit)
                carrier.receiving(len(received), more=not request.content.is_eof())
    except TimeoutError:
        raise ServiceError(
            "invalid_frame", f"the body did not arrive within {seconds:g} seconds"
        ) from None
    except RuntimeError as error:
        # aiohttp, if the server has cut the connection before.
        raise ConnectionResetError("the connection is closed") from error
    finally:
        carrier.receiving(0)
    return bytes(received)


def _too_large(limit: int) -> ServiceError:
    return ServiceError("payload_too_large", f"the body is larger than {limit:,} bytes")
