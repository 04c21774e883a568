"""Client of Hanzo PubSub (HIP-56): typed, async and blocking, over WebSocket or SSE.

The shortest program::

    from hanzoai.pubsub import PubSubClient

    async with PubSubClient(url="wss://pubsub.example.com/ws", token="...") as ps:
        await ps.publish("agent.bot1.events", {"type": "agent.status", "data": {"status": "idle"}})
        async for message in ps.subscribe("agent.**.events"):
            print(message.topic, message.data)

The classes and functions of ``__all__`` are the public names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.blocking.client import PubSub
    from hanzoai.pubsub.blocking.parts import (
        BlockingBatch,
        BlockingSubscription,
    )
    from hanzoai.pubsub.blocking.topic import BlockingTopicHandle
    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.errors import (
        AuthError,
        AuthRefused,
        ClosedError,
        Conflict,
        ConnectionFailed,
        ConnectionLimit,
        InsecureUrl,
        InvalidOption,
        InvalidPayload,
        InvalidTopic,
        LimitExceeded,
        MessagesMissed,
        NotFound,
        OperationTimeout,
        PayloadTooLarge,
        PermissionDenied,
        ProtocolError,
        PubSubError,
        QueueFull,
        RateLimited,
        ReplyError,
        RequestTimeout,
        SchemaError,
        SlowConsumer,
        Superseded,
        TokenExpired,
        Unavailable,
        Unsupported,
        UsageError,
    )
    from hanzoai.pubsub.request_reply.blocking import BlockingResponder
    from hanzoai.pubsub.request_reply.responder import Responder
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.publisher import Batch
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.settings.options import (
        ClientOptions,
        ReceivePolicy,
        ReceiveQueue,
        RetryOptions,
        SendPolicy,
        SendQueue,
        Settings,
        TransportChoice,
    )
    from hanzoai.pubsub.topic import TopicHandle
    from hanzoai.pubsub.topics import is_wildcard, matches, validate_pattern, validate_topic
    from hanzoai.pubsub.values import (
        Before,
        Denial,
        Duration,
        Event,
        Gap,
        Limits,
        Message,
        Occupancy,
        OnInvalid,
        Outgoing,
        OutgoingOf,
        PositionList,
        PresenceChange,
        PresenceMember,
        Publication,
        Published,
        Sender,
        Since,
        StateChange,
        StateName,
        SubscriptionStats,
        Token,
        TokenCallback,
        TokenContext,
        TopicInfo,
        TopicPosition,
        Topics,
        Ttl,
        Types,
        Via,
        occupancy_of,
        users_of,
    )
    from hanzoai.pubsub.version import VERSION as __version__

# Loaded at first use: the server and the command line need only a part of this package.
_HOMES: Final = {
    "blocking.client": ("PubSub",),
    "blocking.parts": (
        "BlockingBatch",
        "BlockingSubscription",
    ),
    "request_reply.blocking": ("BlockingResponder",),
    "blocking.topic": ("BlockingTopicHandle",),
    "client": ("PubSubClient",),
    "errors": (
        "AuthError",
        "AuthRefused",
        "ClosedError",
        "Conflict",
        "ConnectionFailed",
        "ConnectionLimit",
        "InsecureUrl",
        "InvalidOption",
        "InvalidPayload",
        "InvalidTopic",
        "LimitExceeded",
        "MessagesMissed",
        "NotFound",
        "OperationTimeout",
        "PayloadTooLarge",
        "PermissionDenied",
        "ProtocolError",
        "PubSubError",
        "QueueFull",
        "RateLimited",
        "ReplyError",
        "RequestTimeout",
        "SchemaError",
        "SlowConsumer",
        "Superseded",
        "TokenExpired",
        "Unavailable",
        "Unsupported",
        "UsageError",
    ),
    "settings.options": (
        "ClientOptions",
        "ReceivePolicy",
        "ReceiveQueue",
        "RetryOptions",
        "SendPolicy",
        "SendQueue",
        "Settings",
        "TransportChoice",
    ),
    "request_reply.responder": ("Responder",),
    "runtime.handlers": ("GapHandler", "Handler", "StateLoader"),
    "runtime.publisher": ("Batch",),
    "runtime.subscription": ("Subscription",),
    "topic": ("TopicHandle",),
    "topics": ("is_wildcard", "matches", "validate_pattern", "validate_topic"),
    "values": (
        "Before",
        "Denial",
        "Duration",
        "Event",
        "Gap",
        "Limits",
        "Message",
        "Occupancy",
        "OnInvalid",
        "Outgoing",
        "OutgoingOf",
        "PositionList",
        "PresenceChange",
        "PresenceMember",
        "Publication",
        "Published",
        "Sender",
        "Since",
        "StateChange",
        "StateName",
        "SubscriptionStats",
        "Token",
        "TokenCallback",
        "TokenContext",
        "TopicInfo",
        "TopicPosition",
        "Topics",
        "Ttl",
        "Types",
        "Via",
        "occupancy_of",
        "users_of",
    ),
    "version": ("__version__",),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # with this function, type checkers accept every name

    def __getattr__(name: str) -> object:
        module = _HOME_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = importlib.import_module(f"{__name__}.{module}")
        value: object = getattr(found, "VERSION" if name == "__version__" else name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AuthError",
    "AuthRefused",
    "Batch",
    "Before",
    "BlockingBatch",
    "BlockingResponder",
    "BlockingSubscription",
    "BlockingTopicHandle",
    "ClientOptions",
    "ClosedError",
    "Conflict",
    "ConnectionFailed",
    "ConnectionLimit",
    "Denial",
    "Duration",
    "Event",
    "Gap",
    "GapHandler",
    "Handler",
    "InsecureUrl",
    "InvalidOption",
    "InvalidPayload",
    "InvalidTopic",
    "LimitExceeded",
    "Limits",
    "Message",
    "MessagesMissed",
    "NotFound",
    "Occupancy",
    "OnInvalid",
    "OperationTimeout",
    "Outgoing",
    "OutgoingOf",
    "PayloadTooLarge",
    "PermissionDenied",
    "PositionList",
    "PresenceChange",
    "PresenceMember",
    "ProtocolError",
    "PubSub",
    "PubSubClient",
    "PubSubError",
    "Publication",
    "Published",
    "QueueFull",
    "RateLimited",
    "ReceivePolicy",
    "ReceiveQueue",
    "ReplyError",
    "RequestTimeout",
    "Responder",
    "RetryOptions",
    "SchemaError",
    "SendPolicy",
    "SendQueue",
    "Sender",
    "Settings",
    "Since",
    "SlowConsumer",
    "StateChange",
    "StateLoader",
    "StateName",
    "Subscription",
    "SubscriptionStats",
    "Superseded",
    "Token",
    "TokenCallback",
    "TokenContext",
    "TokenExpired",
    "TopicHandle",
    "TopicInfo",
    "TopicPosition",
    "Topics",
    "TransportChoice",
    "Ttl",
    "Types",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "Via",
    "__version__",
    "is_wildcard",
    "matches",
    "occupancy_of",
    "users_of",
    "validate_pattern",
    "validate_topic",
]
