"""Selects the authenticator of a token: API keys by their prefix, all others are JWTs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import jwt

from pubsub_server.auth.api_keys import PREFIX
from pubsub_server.auth.identity import Identity, strip_bearer
from pubsub_server.auth.jwks import ALGORITHMS
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pubsub_server.interfaces import Authenticator

MAX_TOKEN = 16_384
"""Maximum characters of a token."""

MAX_REMEMBERED = 10_000
"""Maximum tokens whose identity is cached."""

OnAuth = Callable[[Identity | None, str | None], None]
"""Receives each attempt: the identity, or the error code."""


class RememberedTokens:
    """Caches the identity of a token for a short time, so that a burst of requests is checked once.

    The cache contains hashes of tokens, never tokens. It does not delay the expiry of a token.

    Args:
        inner: Checks tokens.
        seconds: Lifetime of a cached answer, and so the maximum delay after which the removal of a
            key takes effect.
        monotonic: Seconds.
        clock: Unix seconds.
    """

    def __init__(
        self,
        inner: Authenticator,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._monotonic = monotonic
        self._clock = clock
        self._known: dict[bytes, tuple[float, Identity]] = {}

    async def authenticate(self, token: str) -> Identity:
        """Checks a token.

        Raises:
            ServiceError: `token_invalid`, `token_expired` or `unavailable`.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            until, identity = known
            end = identity.expires_at
            if self._monotonic() < until and (end is None or end > self._clock() * 1000):
                return identity
            del self._known[digest]
        identity = await self._inner.authenticate(token)
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[digest] = (self._monotonic() + self._seconds, identity)
        return identity


class DevelopmentJwts:
    """Passes a JWT to IAM if its algorithm is one of IAM's, and otherwise to the development key.

    Args:
        development: Checks development tokens.
        iam: Checks JWTs that IAM has signed, if the server has its keys.
    """

    def __init__(self, development: Authenticator, iam: Authenticator | None) -> None:
        self._development = development
        self._iam = iam

    async def authenticate(self, token: str) -> Identity:
        """Checks a token.

        Raises:
            ServiceError: `token_invalid`, `token_expired` or `unavailable`.
        """
        try:
            algorithm = jwt.get_unverified_header(strip_bearer(token)).get("alg")
        except jwt.PyJWTError:
            algorithm = None
        if algorithm not in ALGORITHMS:
            return await self._development.authenticate(token)
        if self._iam is None:
            raise ServiceError(
                "token_invalid",
                "this is not a development token, and the server has no keys of its issuer",
                remedy="Start the server with --iam-jwks-url and the address of the keys, or use "
                "a token of `hanzo-pubsub token --user NAME`.",
            )
        return await self._iam.authenticate(token)


class TokenRouter:
    """Passes a token to the authenticator for its kind.

    Args:
        jwts: Checks JWTs, if any are accepted.
        api_keys: Checks API keys, if any are accepted.
        on_auth: Receives each attempt, for counters.
    """

    def __init__(
        self,
        jwts: Authenticator | None,
        api_keys: Authenticator | None,
        on_auth: OnAuth | None = None,
    ) -> None:
        self._jwts = jwts
        self._api_keys = api_keys
        self._on_auth = on_auth

    async def authenticate(self, token: str) -> Identity:
        """Checks a token.

        Raises:
            ServiceError: `token_invalid`, `token_expired` or `unavailable`.
        """
        try:
            identity = await self._check(token)
        except ServiceError as error:
            if self._on_auth is not None:
                self._on_auth(None, error.code)
            raise
        if self._on_auth is not None:
            self._on_auth(identity, None)
        return identity

    async def _check(self, token: str) -> Identity:
        if len(token) > MAX_TOKEN:
            raise ServiceError("token_invalid", f"the token has over {MAX_TOKEN} characters")
        bare = strip_bearer(token)
        if not bare.isascii():
            raise ServiceError("token_invalid", "a token contains only ASCII characters")
        if not bare:
            raise ServiceError("unauthenticated", "the token is empty")
        chosen = self._api_keys if bare.startswith(PREFIX) else self._jwts
        if chosen is None:
            if bare.startswith(PREFIX):
                raise ServiceError("token_invalid", "this server does not accept API keys")
            # The token may be part of a key, so the message doesn't call it a JWT.
            only = f"this server accepts only API keys, which start with {PREFIX}"
            raise ServiceError("token_invalid", only)
        return await chosen.authenticate(bare)
