"""JWTs of IAM, checked against its JWKS: RS256, ES256 and EdDSA, never a shared secret or `none`.

`KeySet` fetches the keys in the background: at the start, when they are older than `max_age`,
and when a token names an unknown key, because keys rotate while the server runs. A token whose key
is known never waits for IAM. The known keys remain in use while fetches fail. Until the first fetch
succeeds, the server can verify no token, so it fetches again after seconds.
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

from hanzoai.pubsub.claims import CLAIMS
from pubsub_server.auth.identity import (
    MAX_SECONDS,
    Identity,
    identity_from_claims,
    strip_bearer,
)
from pubsub_server.errors import ServiceError
from pubsub_server.settings import documents
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

ALGORITHMS = ("RS256", "ES256", "EdDSA")
KEY_TYPES = ("RSA", "EC", "OKP")
MAX_TOKEN = 16_384
MAX_KEYS = 1_000
MIN_RSA_BITS = 2048
SHORTEST_PAUSE = 1.0
"""Minimum seconds between two fetches in the background."""
MAX_DOUBLINGS = 16
"""Of the pause between two failed fetches; `max_age` and `min_interval` bound it too."""

_LOG = logging.getLogger("pubsub_server.auth.jwks")


class FetchFailed(Exception):
    """The keys could not be fetched; the text gives the reason."""


class Fetch(Protocol):
    """How a JWKS document is fetched."""

    def __call__(self) -> Awaitable[object]:
        """The parsed document.

        Raises:
            FetchFailed: It could not be fetched or is not JSON.
        """
        ...


class KeySet:
    """The keys of one JWKS, by `kid`.

    Args:
        fetch: Fetches the document.
        max_age: Seconds between two fetches in the background.
        min_interval: Minimum seconds between the end of a fetch and the next one. Until the first
            fetch succeeds, the maximum instead: the waits double from `SHORTEST_PAUSE` to it.
        patience: Maximum seconds that `find` waits for a fetch when a key is not known.
        monotonic: Seconds.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        max_age: float = 600,
        min_interval: float = 10,
        patience: float = 2.5,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._max_age = max_age
        self._min_interval = min_interval
        self._patience = patience
        self._monotonic = monotonic
        self._keys: dict[str | None, list[tuple[str, PublicKey]]] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._failures = 0
        self._tasks: Tasks | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Fetch the keys in the background, now and every `max_age`."""
        self._refresh()

    async def find(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        """The keys that a token with this header may be signed with; without `kid`, all that fit.

        Returns at once when such a key is known, whatever a fetch does.

        Raises:
            ServiceError: `unavailable` when no such key is known and IAM has not answered since.
        """
        known = self._known(kid, algorithm)
        if not known or self._old():
            self._refresh()
        if known:
            return known
        if self._fetching is not None:
            # Neither a timeout nor a cancelled caller ends the fetch: other callers wait for it.
            await asyncio.wait([self._fetching], timeout=self._patience)
            known = self._known(kid, algorithm)
        if not known and (self._fetching is not None or self._failures or self._fetched is None):
            raise ServiceError(
                "unavailable",
                "the keys of IAM cannot be fetched now",
                retry_after_ms=max(1000, round(self._pause() * 1000)),
            )
        return known

    async def close(self) -> None:
        """Cancel a running fetch, and start no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks is not None:
            await self._tasks.stop()

    def _known(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        if kid is not None:
            entries = self._keys.get(kid, [])
        else:
            entries = [entry for some in self._keys.values() for entry in some]
        return [key for name, key in entries if name == algorithm]

    def _old(self) -> bool:
        return self._fetched is None or self._monotonic() - self._fetched >= self._max_age

    def _pause(self) -> float:
        """Seconds until the next fetch is allowed."""
        if self._tried is None:
            return 0.0
        return self._tried + self._interval() - self._monotonic()

    def _interval(self) -> float:
        """Minimum seconds between the last fetch and the next one."""
        if self._fetched is not None:
            return self._min_interval
        return min(self._min_interval, SHORTEST_PAUSE * _doubled(self._failures - 1))

    def _next_refresh(self) -> float:
        """Seconds between the last fetch and the next one in the background."""
        if self._fetched is None:
            return self._interval()
        if self._failures:
            return min(self._max_age, self._min_interval * _doubled(self._failures))
        return self._max_age

    def _refresh(self) -> None:
        if self._closed or self._fetching is not None or self._pause() > 0:
            return
        if self._tasks is None:
            self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "key set")
        self._fetching = self._tasks.spawn(self._load())

    def _refresh_on_time(self) -> None:
        self._refresh()
        if self._fetching is None:
            # Another sign-in has just fetched the keys.
            self._schedule(self._pause())

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(
                max(SHORTEST_PAUSE, seconds), self._refresh_on_time
            )

    async def _load(self) -> None:
        try:
            self._keys = parse_key_set(await self._fetch())
            if not self._keys:
                _LOG.warning(
                    "IAM publishes no key that the server can use, so it accepts no token; use"
                    " RS256 with %d bits or more, ES256 or EdDSA",
                    MIN_RSA_BITS,
                )
            self._fetched = self._monotonic()
            self._failures = 0
        except Exception as error:
            self._failures += 1
            kept = "there are none yet" if self._fetched is None else "the known keys stay in use"
            unexpected = None if isinstance(error, FetchFailed) else error
            _LOG.warning("cannot fetch the keys of IAM (%s): %s", kept, error, exc_info=unexpected)
        finally:
            self._tried = self._monotonic()
            self._fetching = None
            self._schedule(self._next_refresh())


class JwksAuthenticator:
    """An authenticator that accepts JWTs signed with a key of a `KeySet`.

    Args:
        keys: The accepted keys.
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
        claims: Mapping[str, str] = CLAIMS,
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

    def start(self) -> None:
        """Fetch the keys in the background, from now on."""
        self._keys.start()

    async def close(self) -> None:
        """Cancel a running fetch of keys, and start no more."""
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
        raise ServiceError("token_invalid", "the signature of the token is not valid")


def parse_key_set(document: object) -> dict[str | None, list[tuple[str, PublicKey]]]:
    """Algorithm and public key of each usable key of a JWKS document, by `kid`.

    Keys for encryption, shared secrets, weak keys and unknown kinds are left out.

    Raises:
        FetchFailed: It is not a JWKS document.
    """
    entries = documents.sequence((documents.mapping(document) or {}).get("keys"))
    if entries is None:
        raise FetchFailed("the document has no list `keys`")
    found: dict[str | None, list[tuple[str, PublicKey]]] = {}
    for item in entries[:MAX_KEYS]:
        entry = documents.mapping(item) or {}
        kid = entry.get("kid")
        if not _verifies(entry) or not (kid is None or isinstance(kid, str)):
            continue
        try:
            jwk = jwt.PyJWK.from_dict(entry)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        algorithm = _algorithm(jwk.key)
        if algorithm is not None and jwk.algorithm_name == algorithm:
            found.setdefault(kid, []).append((algorithm, jwk.key))
    return found


def _doubled(times: int) -> float:
    return 2.0 ** min(times, MAX_DOUBLINGS)


def _verifies(entry: Mapping[str, object]) -> bool:
    """Whether a JWK is a public key for signatures, RFC 7517 4.1 to 4.3."""
    if entry.get("use", "sig") != "sig" or entry.get("kty") not in KEY_TYPES:
        return False
    operations = documents.sequence(entry.get("key_ops", ["verify"]))
    return operations is not None and "verify" in operations


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
        problem = "the token's algorithm is not one of " + ", ".join(ALGORITHMS)
        if algorithm == "HS256":
            problem += "; tokens of `hanzo-pubsub token` are for `serve --dev` only"
        raise ServiceError("token_invalid", problem)
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ServiceError("token_invalid", "the token's `kid` is not text")
    return algorithm, kid


def _refusal(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.MissingRequiredClaimError():
            return f"the token does not have the claim `{error.claim}`"
        case jwt.InvalidAudienceError():
            return "the token is for another audience"
        case jwt.InvalidIssuerError():
            return "the token is from another issuer"
        case _:
            return "the token is malformed"


def _seconds(claims: Mapping[str, object], claim: str, default: float) -> float:
    value = claims.get(claim, default)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) < MAX_SECONDS
    ):
        raise ServiceError(
            "token_invalid", f"the token's claim `{claim}` is not a number of seconds"
        )
    return float(value)
