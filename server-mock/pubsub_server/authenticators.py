"""Which authenticator checks a token: API keys by their prefix, everything else as a JWT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_server.api_keys import PREFIX
from pubsub_server.errors import ServiceError
from pubsub_server.identity import Identity, strip_bearer

if TYPE_CHECKING:
    from pubsub_server.interfaces import Authenticator

MAX_TOKEN = 16_384
"""Characters of a token."""

OnAuth = Callable[[Identity | None, str | None], None]
"""Told of every try: the identity, or the error code."""


class TokenRouter:
    """Hands a token to the authenticator for its kind.

    Args:
        jwts: Takes JWTs, if any are accepted.
        api_keys: Takes API keys, if any are accepted.
        on_auth: Told of every try, for audit.
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
        if not bare:
            raise ServiceError("unauthenticated", "the token is empty")
        chosen = self._api_keys if bare.startswith(PREFIX) else self._jwts
        if chosen is None:
            kind = "API keys" if bare.startswith(PREFIX) else "JWTs"
            raise ServiceError("token_invalid", f"this server takes no {kind}")
        return await chosen.authenticate(bare)
