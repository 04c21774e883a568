"""JWTs of IAM, checked against its JWKS: RS256, ES256 and EdDSA, never a shared secret or `none`.

Keys are fetched when they are first needed, again when they are old or a token names one that is
not known (keys rotate while the server runs), and kept when a fetch fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from pubsub_server.auth.identity import (
    DEFAULT_CLAIMS,
    MAX_SECONDS,
    Identity,
    identity_from_claims,
    strip_bearer,
)
from pubsub_server.errors import ServiceError
from pubsub_server.settings import documents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MAX_TOKEN = 16_384
MAX_KEYS = 1_000
MIN_RSA_BITS = 2048

_LOG = logging.getLogger("pubsub_server.auth.jwks")


class FetchFailed(Exception):
    """The keys could not be fetched; the text says why."""


class Fetch(Protocol):
    """How a JWKS document is fetched."""

    def __call__(self) -> Awaitable[object]:
        """The parsed document.

        Raises:
            FetchFailed: It could not be fetched or is no JSON.
        """
        ...


class KeySet:
    """The keys of one JWKS, by `kid`.

    Args:
        fetch: Fetches the document.
        max_age: Seconds after which the keys are fetched anew.
        min_interval: Least seconds between the ends of two fetches.
        monotonic: Seconds.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        max_age: float = 600,
        min_interval: float = 10,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._max_age = max_age
        self._min_interval = min_interval
        self._monotonic = monotonic
        self._keys: dict[str | None, list[tuple[str, PublicKey]]] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        """The keys that a token with this header may be signed with; without `kid`, all that fit.

        Raises:
            ServiceError: `unavailable` while there are no keys at all.
        """
        now = self._monotonic()
        old = self._fetched is None or now - self._fetched >= self._max_age
        if old or not self._known(kid, algorithm):
            await self._refresh(now)
        if self._fetched is None:
            raise ServiceError(
                "unavailable",
                "the keys of IAM cannot be fetched at the moment",
                retry_after_ms=max(1000, round(self._min_interval * 1000)),
            )
        return self._known(kid, algorithm)

    async def close(self) -> None:
        """Ends a fetch that runs."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _known(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        if kid is not None:
            entries = self._keys.get(kid, [])
        else:
            entries = [entry for some in self._keys.values() for entry in some]
        return [key for name, key in entries if name == algorithm]

    async def _refresh(self, now: float) -> None:
        if self._fetching is None:
            if self._tried is not None and now - self._tried < self._min_interval:
                return
            self._fetching = asyncio.create_task(self._load())
        # Shielded: one who gives up must not take the fetch from the others.
        await asyncio.shield(self._fetching)

    async def _load(self) -> None:
        try:
            self._keys = parse_key_set(await self._fetch())
            self._fetched = self._monotonic()
        except FetchFailed as error:
            kept = "there are none yet" if self._fetched is None else "those known stay in use"
            _LOG.warning("the keys of IAM cannot be fetched (%s): %s", kept, error)
        finally:
            self._tried = self._monotonic()
            self._fetching = None


class JwksAuthenticator:
    """An authenticator that takes JWTs signed with a key of a `KeySet`.

    Args:
        keys: Where the keys are.
        audiences: Accepted values of `aud`, of which a token needs one; empty accepts any.
        issuer: Required `iss`, if any.
        leeway: Seconds by which `nbf` and `iat` may lie ahead.
        claims: Claim by field of `Identity`.
        clock: Unix seconds.
    """

    def __init__(
        self,
        keys: KeySet,
        *,
        audiences: Sequence[str] = (),
        issuer: str | None = None,
        leeway: float = 5,
        claims: Mapping[str, str] = DEFAULT_CLAIMS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._audiences = list(audiences)
        self._issuer = issuer
        self._leeway = leeway
        self._claims = claims
        self._clock = clock

    async def authenticate(self, token: str) -> Identity:
        """Checks a token: signature, audience, issuer, times, claims.

        Raises:
            ServiceError: `token_invalid`, `token_expired`, or `unavailable` without keys.
        """
        bare = strip_bearer(token)
        algorithm, kid = _header(bare)
        keys = await self._keys.find(kid, algorithm)
        if not keys:
            raise ServiceError(
                "token_invalid", "IAM does not publish the key that the token is signed with"
            )
        claims = self._decode(bare, algorithm, keys)
        now = self._clock()
        for claim in ("nbf", "iat"):
            if _seconds(claims, claim, now) > now + self._leeway:
                raise ServiceError("token_invalid", f"the token is not valid yet (`{claim}`)")
        identity = identity_from_claims(claims, self._claims)
        if _seconds(claims, "exp", now) <= now:
            raise ServiceError("token_expired", "the token has expired")
        return identity

    async def close(self) -> None:
        """Ends a fetch of keys that runs."""
        await self._keys.close()

    def _decode(self, token: str, algorithm: str, keys: Sequence[PublicKey]) -> dict[str, object]:
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self._audiences or None,
                    issuer=self._issuer,
                    options={
                        "require": ["exp"],
                        "verify_aud": bool(self._audiences),
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise ServiceError("token_invalid", _refusal(error)) from None
        raise ServiceError("token_invalid", "the signature of the token does not hold")


def parse_key_set(document: object) -> dict[str | None, list[tuple[str, PublicKey]]]:
    """Algorithm and public key of each usable key of a JWKS document, by `kid`.

    Keys for encryption, shared secrets, weak keys and unknown kinds are left out.

    Raises:
        FetchFailed: It is no JWKS document.
    """
    entries = documents.sequence((documents.mapping(document) or {}).get("keys"))
    if entries is None:
        raise FetchFailed("the document has no list `keys`")
    found: dict[str | None, list[tuple[str, PublicKey]]] = {}
    for item in entries[:MAX_KEYS]:
        entry = documents.mapping(item) or {}
        if entry.get("use", "sig") != "sig" or entry.get("kty") not in {"RSA", "EC", "OKP"}:
            continue
        try:
            jwk = jwt.PyJWK.from_dict(entry)
        except jwt.PyJWTError:
            continue
        algorithm = _algorithm(jwk.key)
        if algorithm is not None and jwk.algorithm_name == algorithm:
            kid = jwk.key_id
            found.setdefault(kid, []).append((algorithm, jwk.key))
    return found


def _algorithm(key: object) -> str | None:
    match key:
        case RSAPublicKey():
            return "RS256" if key.key_size >= MIN_RSA_BITS else None
        case EllipticCurvePublicKey():
            return "ES256" if isinstance(key.curve, SECP256R1) else None
        case Ed25519PublicKey():
            return "EdDSA"
        case _:
            return None


def _header(token: str) -> tuple[str, str | None]:
    if len(token) > MAX_TOKEN:
        raise ServiceError("token_invalid", f"the token is longer than {MAX_TOKEN} characters")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise ServiceError("token_invalid", "this is neither a JWT nor a known API key") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise ServiceError(
            "token_invalid", "the token's algorithm is not one of " + ", ".join(ALGORITHMS)
        )
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ServiceError("token_invalid", "the token's `kid` is no text")
    return algorithm, kid


def _refusal(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.MissingRequiredClaimError():
            return f"the token lacks the claim `{error.claim}`"
        case jwt.InvalidAudienceError():
            return "the token is for another audience"
        case jwt.InvalidIssuerError():
            return "the token is of another issuer"
        case _:
            return "the token is malformed"


def _seconds(claims: Mapping[str, object], claim: str, default: float) -> float:
    value = claims.get(claim, default)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) < MAX_SECONDS
    ):
        raise ServiceError("token_invalid", f"the token's claim `{claim}` is no number of seconds")
    return float(value)
