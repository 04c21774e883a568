"""Entries of those settings that are lists: receivers of webhooks, classes of history."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_pattern
from pubsub_server.auth.identity import Identity
from pubsub_server.settings.formats import long_enough
from pubsub_server.settings.kinds import seconds


def signing_key(secret: str) -> bytes:
    """The key of a webhook secret: `whsec_` and base64, or the text itself.

    Raises:
        ValueError: What follows `whsec_` is not base64, or has no bytes.
    """
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError(
            "is not base64 after whsec_; copy the whole secret, or remove whsec_ if the secret is"
            " plain text"
        )
    return key


class Webhook(BaseModel):
    """One receiver of webhooks.

    Attributes:
        url: URL for batches: http or https.
        topics: Patterns whose events are sent.
        events: Which events: `publish`, `join`, `leave`, `update`, `subscribe`, `unsubscribe`; of
            the event stream `pubsub.subscribed`, `pubsub.unsubscribed`, `pubsub.published`. Only
            `publish` by default.
        secret: Key of the HMAC-SHA256 signature, at least 16 characters: `whsec_` and base64, or
            text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    topics: tuple[str, ...] = ("**",)
    events: tuple[
        Literal[
            "publish",
            "join",
            "leave",
            "update",
            "subscribe",
            "unsubscribe",
            "pubsub.subscribed",
            "pubsub.unsubscribed",
            "pubsub.published",
        ],
        ...,
    ] = ("publish",)
    secret: SecretStr

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL")
        if parts.username or parts.password:
            raise ValueError(
                "must not contain a user or password; requests are signed with `secret`"
            )
        return url

    @field_validator("secret")
    @classmethod
    def _usable(cls, secret: SecretStr) -> SecretStr:
        signing_key(secret.get_secret_value())
        return long_enough(secret)


def _age(value: object) -> object:
    read = seconds(value)
    if isinstance(read, str):
        try:
            float(read)
        except ValueError:
            form = "must be seconds, for example 3600, or have a unit: 90s, 10m, 1h"
            raise ValueError(form) from None
    return read


class HistoryClass(BaseModel):
    """The retention of certain topics.

    Attributes:
        topics: Patterns.
        max_messages: Maximum messages per topic; default `history_max_messages`.
        max_age: Seconds for which a message is retained; default `history_max_age`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topics: tuple[str, ...] = Field(min_length=1)
    max_messages: int | None = Field(default=None, ge=0, le=1_000_000)
    max_age: Annotated[int | None, BeforeValidator(_age), Field(ge=0, le=31_536_000)] = None

    @field_validator("topics", mode="before")
    @classmethod
    def _a_list(cls, topics: object) -> object:
        if not isinstance(topics, list | tuple):
            raise ValueError('must be a list of patterns, for example ["org.**"]')  # noqa: TRY004
        return tuple(topics)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]

    @field_validator("topics")
    @classmethod
    def _patterns(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in topics:
            try:
                validate_pattern(pattern)
            except InvalidTopic as error:
                raise ValueError(f"{error.message} {error.remedy}") from None
        return topics


class ListenerIdentity(BaseModel):
    """The identity of connections of a listener whose protocol has no tokens.

    Attributes:
        user: Identifies the person or service.
        kind: `user`, `service` or `admin`.
        name: Display name; default `user`.
        orgs: Organizations it is a member of.
        sessions_owned: Chat sessions it owns.
        sessions_shared: Chat sessions shared with it.
        agents: Agents it has access to.
        certificates: Other identities, by name of the client certificate, with
            `listener_client_ca`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str = Field(min_length=1, max_length=128)
    kind: Literal["user", "service", "admin"] = "user"
    name: str | None = Field(default=None, max_length=128)
    orgs: frozenset[str] = frozenset()
    sessions_owned: frozenset[str] = frozenset()
    sessions_shared: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    certificates: dict[str, ListenerIdentity] = Field(default_factory=dict[str, "ListenerIdentity"])

    def identity(self) -> Identity:
        """The identity that this entry describes."""
        return Identity(
            self.user,
            self.kind,
            self.name or self.user,
            orgs=self.orgs,
            sessions_owned=self.sessions_owned,
            sessions_shared=self.sessions_shared,
            agents=self.agents,
        )
