"""Every setting of a client: its default, its unit, its range, and the check of it.

Defaults come from `spec/defaults.yaml`. Durations are seconds or a timedelta, as everywhere in the
Python API; the checked options hold seconds.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast, get_args

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS
from hanzoai.pubsub.near_names import misspelt_variable
from hanzoai.pubsub.settings.checks import (
    check_choice,
    check_flag,
    check_function,
    check_instance,
    check_name,
    check_proxy,
    check_seconds,
    check_token,
    check_whole,
    invalid,
)
from hanzoai.pubsub.settings.extras import is_usable
from hanzoai.pubsub.settings.known_arguments import known_arguments, unknown_option
from hanzoai.pubsub.settings.session import SessionOptions
from hanzoai.pubsub.settings.urls import endpoints, refuse_plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hanzoai.pubsub.values import Duration, Token

SendPolicy = Literal["error", "block", "drop_oldest", "latest"]
"""What the client does when its send queue is full: raise QueueFull, wait, drop the oldest message,
or keep only the newest of each key."""

ReceivePolicy = Literal["gap", "block", "error"]
"""What the client does when the queue of a subscription is full: drop the oldest messages and
report a gap, stop reading, or end the subscription with an error."""

TransportChoice = Literal["auto", "websocket", "sse"]
"""How a client connects; `auto` starts with a WebSocket and falls back to server-sent events."""

SpeedChoice = Literal["auto", "on", "off"]
"""Whether picows and msgspec are used: where they are installed, always, or never."""

URL_VARIABLE: Final = "HANZO_PUBSUB_URL"
TOKEN_VARIABLE: Final = "HANZO_PUBSUB_TOKEN"
REST_URL_VARIABLE: Final = "HANZO_PUBSUB_REST_URL"
SPEED_VARIABLE: Final = "HANZO_PUBSUB_SPEED"


@known_arguments
@dataclass(frozen=True, slots=True)
class SendQueue:
    """Bounds of the publishes that wait to be sent or acknowledged.

    Attributes:
        messages: Maximum number of messages, 1 to 1,000,000; default 1,000.
        bytes: Maximum bytes of JSON, 1 to 1 GiB; default 1 MiB.
        policy: What happens when the queue is full; default `error`.
    """

    messages: int = CLIENT.send_queue_messages
    bytes: int = CLIENT.send_queue_bytes
    policy: SendPolicy = "error"

    def __post_init__(self) -> None:
        check_whole(
            "send_queue.messages", self.messages, high=1_000_000, unit="a number of messages"
        )
        check_whole("send_queue.bytes", self.bytes, unit="a number of bytes")
        check_choice("send_queue.policy", self.policy, get_args(SendPolicy))


@known_arguments
@dataclass(frozen=True, slots=True)
class ReceiveQueue:
    """Bounds of the messages of one subscription that the program has not read yet.

    Attributes:
        messages: Maximum number of messages, 1 to 1,000,000; default 1,024.
        bytes: Maximum bytes, 1 to 1 GiB; default 8 MiB.
        policy: What happens when the queue is full; default `gap`.
    """

    messages: int = CLIENT.receive_queue_messages
    bytes: int = CLIENT.receive_queue_bytes
    policy: ReceivePolicy = "gap"

    def __post_init__(self) -> None:
        check_whole(
            "receive_queue.messages", self.messages, high=1_000_000, unit="a number of messages"
        )
        check_whole("receive_queue.bytes", self.bytes, unit="a number of bytes")
        check_choice("receive_queue.policy", self.policy, get_args(ReceivePolicy))


@known_arguments
@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Delays before the client reconnects.

    The client waits a random time, evenly distributed from 0 to a bound. The bound is `base` for
    the first attempt and twice `base` for the next ones. It then grows with the square of the time
    without a connection, up to `cap`: it is 4 s after 25 s, and 10 s after 40 s. While a publish
    waits, the bound does not grow. A call of your program starts the next attempt early, at most
    once per second.

    Attributes:
        base: First bound in seconds or as a timedelta, 0.001 s to a day; default 1.
        cap: Maximum delay in seconds or as a timedelta, at least `base`; default 30. The client
            respects a longer `retry_after` of the server.
        stable_after: Seconds, or a timedelta, after which a connection resets the bound; default
            10.
    """

    base: Duration = CLIENT.retry_base / 1000
    cap: Duration = CLIENT.retry_cap / 1000
    stable_after: Duration = CLIENT.stable_after / 1000

    def __post_init__(self) -> None:
        base = check_seconds("retry.base", self.base)
        cap = check_seconds("retry.cap", self.cap)
        check_seconds("retry.stable_after", self.stable_after)
        if cap < base:
            raise InvalidOption(
                "`retry.cap` is below `retry.base`.",
                remedy="Raise `cap` or lower `base`.",
                field="retry.cap",
            )


class Settings(TypedDict, total=False):
    """Further options of `PubSubClient`, passed by name.

    Durations are 0.001 s to a day, and numbers of topics, messages and failures 1 to 1,000,000,
    unless stated otherwise.
    """

    fetch_timeout: Duration
    """Timeout of the token callback, in seconds; default 10."""
    open_timeout: Duration
    """Timeout to connect and authenticate, in seconds; default 5."""
    operation_timeout: Duration
    """Timeout of publish, subscribe, history and presence, in seconds; default 10."""
    close_timeout: Duration
    """Seconds that `close` waits for unanswered publishes; default 5."""
    ping_interval: Duration
    """Seconds without traffic before the client sends a ping; default 15. The server closes an idle
    connection after 30.
    """
    pong_timeout: Duration
    """Seconds that the client waits for any byte after a ping; default 10."""
    retry: RetryOptions
    """Delays before the client reconnects."""
    suspend_after: Duration
    """Seconds without a connection until the state is `suspended`; default 120."""
    refresh_margin: Duration
    """Seconds before the expiry of a token at which the client renews it, if the server sends no
    `auth.expiring`; default 45.
    """
    fallback_after: Duration
    """Seconds after which the client falls back to server-sent events if the first WebSocket is not
    open and the HTTP address answers; default 8.
    """
    fallback_failures: int
    """Failed WebSocket openings after which the client falls back, if the HTTP address answers;
    default 2.
    """
    short_life: int
    """Replaces `fallback_failures` once a WebSocket to the address has worked in this process. A
    connection that is lost before the server answers a request counts as a failed opening; default
    3.
    """
    upgrade_after: Duration
    """Seconds on server-sent events before the client tries a WebSocket. The time doubles with each
    attempt, up to ten minutes; default 30.
    """
    overlap: Duration
    """Seconds replayed before the newest message, with a server without `seq`; default 5."""
    remembered_ids: int
    """Message ids kept per topic to detect duplicates, with a server without `seq`; default 1,000.
    """
    remembered_topics: int
    """Topics per subscription whose position the client tracks; default 20,000."""
    receive_queue: ReceiveQueue
    """Bounds of a subscription without its own `queue`."""
    held_messages: int
    """Live messages per subscription that may wait for its replay; default 10,000."""
    max_frame: int
    """Maximum bytes of a received frame or event; default 32 MiB."""
    max_payload: int
    """Maximum bytes of JSON-encoded `data`, unless the server states another limit; default
    262,144.
    """
    rest_attempts: int
    """Maximum attempts of an HTTP request; default 4."""
    history_page: int
    """Messages per page of history; default 100."""
    compression: bool
    """Whether the client offers permessage-deflate; default False."""
    proxy: str | bool
    """URL of a proxy. True uses the proxy of the system, False uses none; default True."""
    ssl_context: ssl.SSLContext | None
    """TLS settings. None uses the certificates of the system."""
    speed: SpeedChoice
    """Libraries for WebSockets and JSON. `auto` uses picows and msgspec where they are installed
    (extra `speed`), `on` requires both, `off` uses websockets and pydantic. Connections with
    compression or through a proxy always use websockets. Default `auto`, or `HANZO_PUBSUB_SPEED`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """All options of a client, validated.

    Attributes:
        socket_url: URL of the WebSocket.
        http_url: Base URL of REST and the event stream.
        token: Bearer token or API key, or None if `get_token` returns it. Not shown in `repr`.
        get_token: The token callback, or None.
        transport: `auto`, `websocket` or `sse`.
        allow_insecure: Whether the client may send a token unencrypted to another machine.
        name: Name of the program, which the client sends to the server; at most 128 characters.
        echo: Whether subscriptions receive the messages that this client publishes.
        send_queue: Bounds of the messages that wait to be sent or acknowledged.
        receive_queue: Bounds of a subscription without its own `queue`.
        fetch_timeout: Timeout of the token callback, in seconds; default 10.
        open_timeout: Timeout to connect and authenticate, in seconds; default 5.
        operation_timeout: Timeout of publish, subscribe, history and presence, in seconds; default
            10.
        close_timeout: Seconds that `close` waits for unanswered publishes; default 5.
        ping_interval: Seconds without traffic before the client sends a ping; default 15. The
            server closes an idle connection after 30.
        pong_timeout: Seconds that the client waits for any byte after a ping; default 10.
        retry: Delays before the client reconnects.
        suspend_after: Seconds without a connection until the state is `suspended`; default 120.
        refresh_margin: Seconds before the expiry of a token at which the client renews it, if the
            server sends no `auth.expiring`; default 45.
        fallback_after: Seconds after which the client falls back to server-sent events if the first
            WebSocket is not open and the HTTP address answers; default 8.
        fallback_failures: Failed WebSocket openings after which the client falls back, if the HTTP
            address answers; default 2.
        short_life: Replaces `fallback_failures` once a WebSocket to the address has worked in this
            process. A connection that is lost before the server answers a request counts as a
            failed opening; default 3.
        upgrade_after: Seconds on server-sent events before the client tries a WebSocket. The time
            doubles with each attempt, up to ten minutes; default 30.
        overlap: Seconds replayed before the newest message, with a server without `seq`; default 5.
        remembered_ids: Message ids kept per topic to detect duplicates, with a server without
            `seq`; default 1,000.
        remembered_topics: Topics per subscription whose position the client tracks; default 20,000.
        held_messages: Live messages per subscription that may wait for its replay; default 10,000.
        max_frame: Maximum bytes of a received frame or event; default 32 MiB.
        max_payload: Maximum bytes of JSON-encoded `data`, unless the server states another limit;
            default 262,144.
        rest_attempts: Maximum attempts of an HTTP request; default 4.
        history_page: Messages per page of history; default 100.
        compression: Whether the client offers permessage-deflate; default False.
        proxy: URL of a proxy. True uses the proxy of the system, False uses none; default True.
        ssl_context: TLS settings. None uses the certificates of the system.
        speed: Libraries for WebSockets and JSON. `auto` uses picows and msgspec where they are
            installed (extra `speed`), `on` requires both, `off` uses websockets and pydantic.
            Connections with compression or through a proxy always use websockets. Default `auto`,
            or `HANZO_PUBSUB_SPEED`.
        http_derived: Whether `http_url` was derived from another address.
    """

    socket_url: str
    http_url: str
    token: str | None = field(default=None, repr=False)
    get_token: Callable[..., object] | None = field(default=None, repr=False)
    transport: TransportChoice = "auto"
    allow_insecure: bool = False
    name: str | None = None
    echo: bool = True
    send_queue: SendQueue = field(default_factory=SendQueue)
    receive_queue: ReceiveQueue = field(default_factory=ReceiveQueue)
    fetch_timeout: float = CLIENT.fetch_timeout / 1000
    open_timeout: float = CLIENT.open_timeout / 1000
    operation_timeout: float = CLIENT.operation_timeout / 1000
    close_timeout: float = CLIENT.close_timeout / 1000
    ping_interval: float = CLIENT.ping_interval / 1000
    pong_timeout: float = CLIENT.pong_timeout / 1000
    retry: RetryOptions = field(default_factory=RetryOptions)
    suspend_after: float = CLIENT.suspend_after / 1000
    refresh_margin: float = CLIENT.refresh_margin / 1000
    fallback_after: float = CLIENT.fallback_after / 1000
    fallback_failures: int = CLIENT.fallback_failures
    short_life: int = CLIENT.short_life
    upgrade_after: float = CLIENT.upgrade_after / 1000
    overlap: float = CLIENT.overlap / 1000
    remembered_ids: int = CLIENT.remembered_ids
    remembered_topics: int = CLIENT.remembered_topics
    held_messages: int = CLIENT.held_messages
    max_frame: int = CLIENT.max_frame
    max_payload: int = LIMITS.max_payload
    rest_attempts: int = CLIENT.rest_attempts
    history_page: int = CLIENT.history_page
    compression: bool = False
    proxy: str | bool = True
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    speed: SpeedChoice = "auto"
    http_derived: bool = False

    def __post_init__(self) -> None:
        for name in _TIMES:
            object.__setattr__(self, name, check_seconds(name, getattr(self, name)))
        for name in _COUNTS:
            check_whole(name, getattr(self, name), high=1_000_000)
        overlap = check_seconds("overlap", self.overlap, low=0.0, high=3_600.0)
        object.__setattr__(self, "overlap", overlap)
        check_whole("rest_attempts", self.rest_attempts, high=100, unit="a number of attempts")
        check_whole(
            "history_page",
            self.history_page,
            high=LIMITS.history_page_max,
            unit="a number of messages",
        )
        check_whole("max_frame", self.max_frame, low=1_024, unit="a number of bytes")
        check_whole("max_payload", self.max_payload, unit="a number of bytes")
        for name in ("allow_insecure", "echo", "compression"):
            check_flag(name, getattr(self, name))
        check_choice("transport", self.transport, get_args(TransportChoice))
        check_choice("speed", self.speed, get_args(SpeedChoice))
        if self.speed == "on":
            _require_speed()
        check_instance("send_queue", self.send_queue, SendQueue)
        check_instance("receive_queue", self.receive_queue, ReceiveQueue)
        check_instance("retry", self.retry, RetryOptions)
        check_proxy(self.proxy)
        if self.ssl_context is not None:
            check_instance("ssl_context", self.ssl_context, ssl.SSLContext, _SSL_REMEDY)
        if self.name is not None:
            check_name(self.name)

    def session(self) -> SessionOptions:
        """The options of the session, in milliseconds."""
        # Loaded with the first connection: it reads how the package is installed.
        from hanzoai.pubsub.version import VERSION

        return SessionOptions(
            renewable=self.get_token is not None,
            transport=self.transport,
            client_name=self.name or "hanzoai.pubsub",
            client_version=VERSION,
            fetch_timeout=_ms(self.fetch_timeout),
            open_timeout=_ms(self.open_timeout),
            close_timeout=_ms(self.close_timeout),
            ping_interval=_ms(self.ping_interval),
            pong_timeout=_ms(self.pong_timeout),
            retry_base=_ms(self.retry.base),
            retry_cap=_ms(self.retry.cap),
            stable_after=_ms(self.retry.stable_after),
            suspend_after=_ms(self.suspend_after),
            refresh_margin=_ms(self.refresh_margin),
            fallback_after=_ms(self.fallback_after),
            fallback_failures=self.fallback_failures,
            short_life=self.short_life,
            upgrade_after=_ms(self.upgrade_after),
            overlap=_ms(self.overlap),
            remembered_ids=self.remembered_ids,
            remembered_topics=self.remembered_topics,
            send_queue_messages=self.send_queue.messages,
            send_queue_bytes=self.send_queue.bytes,
            held_messages=self.held_messages,
        )


_SSL_REMEDY: Final = "Create it with ssl.create_default_context(cafile=...)."


def _require_speed() -> None:
    missing = [name for name in ("picows", "msgspec") if not is_usable(name)]
    if missing:
        raise invalid(
            "speed",
            f"is on, and no recent version of {' and '.join(missing)} can be imported",
            "Install hanzoai.pubsub[speed], or set `speed` to `auto`.",
        )


def _ms(duration: Duration) -> int:
    return round(seconds_of(duration) * 1000)


_TIMES: Final = (
    "fetch_timeout",
    "open_timeout",
    "operation_timeout",
    "close_timeout",
    "ping_interval",
    "pong_timeout",
    "suspend_after",
    "refresh_margin",
    "fallback_after",
    "upgrade_after",
)
_COUNTS: Final = (
    "fallback_failures",
    "short_life",
    "remembered_ids",
    "remembered_topics",
    "held_messages",
)
_ARGUMENTS: Final = (
    "url",
    "token",
    "get_token",
    "transport",
    "rest_url",
    "allow_insecure",
    "name",
    "echo",
    "send_queue",
    "on_state",
    "on_error",
)


def read_options(
    url: str | None = None,
    token: str | Token | None = None,
    *,
    get_token: Callable[..., object] | None = None,
    transport: TransportChoice = "auto",
    rest_url: str | None = None,
    allow_insecure: bool = False,
    name: str | None = None,
    echo: bool = True,
    send_queue: SendQueue | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> ClientOptions:
    """Join arguments, environment and defaults, and check them all.

    Args:
        url: `ws://`, `wss://`, `http://` or `https://`; default `HANZO_PUBSUB_URL`.
        token: Default `HANZO_PUBSUB_TOKEN`, where no `get_token` is given. The server decides when
            it expires, so the expiry of a `Token` is not used.
        get_token: A function or a coroutine function.
        transport: `auto`, `websocket` or `sse`.
        rest_url: Base of the HTTP API; default `HANZO_PUBSUB_REST_URL` where `url` comes from the
            environment, too, else derived from `url`.
        allow_insecure: Send a token unencrypted to another machine.
        name: Name of the program.
        echo: Whether subscriptions get what this client published.
        send_queue: Bounds of unsettled publishes.
        settings: What `Settings` lists, by name.
        environ: The environment; default the process's.

    Raises:
        InvalidOption: A value has a wrong type or is out of range, a required one is missing, or a
            name is not known; `field` names it.
        InsecureUrl: The client would send a token to another machine without encryption.
    """
    environ = os.environ if environ is None else environ
    given = dict(cast("Mapping[str, object]", settings or {}))
    if "speed" not in given and environ.get(SPEED_VARIABLE):
        given["speed"] = environ[SPEED_VARIABLE]
    _refuse_unknown(given)
    if url is None:
        url = environ.get(URL_VARIABLE) or None
        rest_url = rest_url or environ.get(REST_URL_VARIABLE) or None
    if url is None:
        raise InvalidOption(
            "No URL was given.",
            remedy=f"Pass `url`, for example wss://pubsub.example.com/ws, or set {URL_VARIABLE}."
            + misspelt_variable(URL_VARIABLE, environ),
            field="url",
        )
    found = endpoints(url, rest_url)
    check_function(
        "get_token",
        get_token,
        "Pass a function or a coroutine function that takes a TokenContext and returns the token.",
    )
    if token is not None and get_token is not None:
        raise InvalidOption(
            "Both `token` and `get_token` were given.", remedy="Pass one of them.", field="token"
        )
    if token is None and get_token is None:
        token = environ.get(TOKEN_VARIABLE) or None
        if token is None:
            raise InvalidOption(
                "No token was given.",
                remedy=f"Pass `token` or `get_token`, or set {TOKEN_VARIABLE}."
                + misspelt_variable(TOKEN_VARIABLE, environ),
                field="token",
            )
    if token is not None:
        if not isinstance(token, str):
            # Imports pydantic, as the program has already done if it passes a Token.
            from hanzoai.pubsub.values import Token

            token = token.value if isinstance(cast("object", token), Token) else token
        token = check_token(token)
    check_flag("allow_insecure", allow_insecure)
    if not allow_insecure:
        refuse_plaintext(found)
    return ClientOptions(
        socket_url=found.socket,
        http_url=found.http,
        http_derived=rest_url is None and not url.lstrip().lower().startswith("http"),
        token=token,
        get_token=get_token,
        transport=transport,
        allow_insecure=allow_insecure,
        name=name,
        echo=echo,
        send_queue=SendQueue() if send_queue is None else send_queue,
        **cast("Any", given),
    )


def _refuse_unknown(settings: Mapping[str, object]) -> None:
    known = Settings.__annotations__
    for name in settings:
        if name not in known:
            raise unknown_option(
                name, (*known, *_ARGUMENTS), "hanzoai.pubsub.Settings lists all options."
            )


__all__ = [
    "ClientOptions",
    "ReceivePolicy",
    "ReceiveQueue",
    "RetryOptions",
    "SendPolicy",
    "SendQueue",
    "Settings",
    "SpeedChoice",
    "TransportChoice",
    "check_token",
    "read_options",
]
