"""Sign tokens in your backend, for browsers and services that connect to Hanzo PubSub.

    signer = TokenSigner(private_key_pem, issuer="https://app.example", key_id="2026-11")

    @app.get("/.well-known/jwks.json")  # IAM_JWKS_URL of the server
    def keys():
        return signer.jwks()

    @app.post("/pubsub-token")
    def token(user=Depends(logged_in)):
        return signer.sign(user.id, sessions_owned=user.sessions).value

Needs the extra `tokens`: ``pip install 'hanzoai.pubsub[tokens]'``. A key is made with
``openssl genpkey -algorithm ed25519``.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from hanzoai.pubsub.claims import CLAIMS, identity_claims
from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import InvalidOption, InvalidPayload, UsageError
from hanzoai.pubsub.settings.checks import TOKEN_MAX, check_flag
from hanzoai.pubsub.settings.checks import kind as kind_of
from hanzoai.pubsub.values import Token
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = ["TokenSigner"]

TTL: Final = 900.0
"""Default lifetime of a token in seconds."""

TTL_MAX: Final = 366 * 86_400.0

RSA_BITS: Final = 2048

_NONE: Final = object()

_KINDS: Final = ("user", "service", "admin", "agent")

_RESERVED: Final = frozenset({"iss", "aud", "iat", "nbf", "exp", *CLAIMS.values()})


class TokenSigner:
    """Signs tokens with a private key, and publishes the public key.

    Args:
        private_key: PEM of an Ed25519, P-256 or RSA key (2,048 bits or more), unencrypted or with
            ``password``. The algorithm follows from it: EdDSA, ES256 or RS256.
        key_id: Name of the key. Give each key a different name, so that the server finds the right
            one while you replace a key.
        issuer: ``iss`` of the tokens; the server checks it if ``jwt_issuer`` is set.
        audience: ``aud`` of the tokens; the server checks it if ``jwt_audience`` is set.
        password: Password of an encrypted PEM.

    Raises:
        InvalidOption: The key cannot be read, or has another type; or another argument is empty or
            has a wrong type. ``field`` names it.
        UsageError: The extra ``tokens`` is not installed.
    """

    def __init__(
        self,
        private_key: str | bytes,
        *,
        key_id: str,
        issuer: str | None = None,
        audience: str | Sequence[str] | None = None,
        password: str | bytes | None = None,
    ) -> None:
        if not isinstance(cast("object", key_id), str) or not key_id:
            raise _invalid(
                "key_id",
                f"`key_id` is {'empty' if key_id == '' else kind_of(key_id)}.",
                "Name the key with a string, for example by its date.",
            )
        self.key_id = key_id
        self._key, self.algorithm = _load(private_key, password)
        self._common: dict[str, object] = {}
        if issuer is not None:
            if not isinstance(cast("object", issuer), str) or not issuer:
                problem = "empty" if issuer == "" else f"{kind_of(issuer)}, not a string"
                raise _invalid("issuer", f"`issuer` is {problem}.", _remedy("issuer"))
            self._common["iss"] = issuer
        if audience is not None:
            given = [audience] if isinstance(audience, str) else audience
            names = _names("audience", given, _remedy("audience"))
            if not names or "" in names:
                raise _invalid("audience", "`audience` is empty.", _remedy("audience"))
            self._common["aud"] = audience if isinstance(audience, str) else names

    def __repr__(self) -> str:
        return f"TokenSigner(key_id={self.key_id!r}, algorithm={self.algorithm!r})"

    def sign(
        self,
        user: str,
        *,
        kind: Literal["user", "service", "admin", "agent"] = "user",
        ttl: float | timedelta = TTL,
        name: str | None = None,
        avatar_url: str | None = None,
        orgs: Sequence[str] = (),
        sessions_owned: Sequence[str] = (),
        sessions_shared: Sequence[str] = (),
        agents: Sequence[str] = (),
        bulk: bool = False,
        extra: Mapping[str, object] | None = None,
    ) -> Token:
        """Sign one token.

        Args:
            user: The id of the user, service or agent: 1 to 128 characters.
            kind: Kind of the identity; ``service`` may also publish to topics that no rule matches,
                ``admin`` may do everything.
            ttl: Seconds or a timedelta until it expires, above 0 and at most 366 days; default
                900. Keep it short: a token cannot be revoked.
            name: Display name in presence; default: ``user``.
            avatar_url: Picture in presence.
            orgs: Organizations the user is a member of.
            sessions_owned: Chat sessions the user owns.
            sessions_shared: Chat sessions shared with the user.
            agents: Agents the user has access to.
            bulk: Whether batches over REST have a separate publish rate.
            extra: Your own claims; the server ignores them.

        Returns:
            A token as ``get_token`` returns it: ``value`` is the JWT, ``expires_at`` Unix seconds.

        Raises:
            InvalidOption: An argument has a wrong type or is out of range, ``extra`` is not plain
                JSON, or the token would have more than 16,384 characters; ``field`` names the
                argument. A list is not a single text, whose characters would become its entries.
        """
        import jwt

        if not isinstance(cast("object", user), str):
            raise _invalid(
                "user",
                f"`user` is {kind_of(user)}, not a string.",
                "Pass the id of the user as a string, such as str(user.id).",
            )
        if not 1 <= len(user) <= 128:
            raise _invalid("user", f"`user` has {len(user)} characters.", "Pass 1 to 128.")
        if kind not in _KINDS:
            raise _invalid(
                "kind", f"`kind` is {kind!r}.", f"Pass one of {', '.join(map(repr, _KINDS))}."
            )
        lists = {
            "orgs": _names("orgs", orgs),
            "sessions_owned": _names("sessions_owned", sessions_owned),
            "sessions_shared": _names("sessions_shared", sessions_shared),
            "agents": _names("agents", agents),
        }
        for field, text in (("name", name), ("avatar_url", avatar_url)):
            if text is not None and not isinstance(cast("object", text), str):
                raise _invalid(
                    field, f"`{field}` is {kind_of(text)}, not a string.", "Pass a string."
                )
        check_flag("bulk", bulk)
        seconds = seconds_of(cast("float | timedelta | None", ttl), "ttl")
        if seconds is None:
            raise _invalid("ttl", "`ttl` is None.", "Pass seconds or a timedelta, or leave it out.")
        if not 0 < seconds <= TTL_MAX:
            raise _invalid(
                "ttl", f"`ttl` is {seconds:g} s.", "Pass a value above 0 and at most 366 days."
            )
        if extra is not None and not isinstance(cast("object", extra), Mapping):
            raise _invalid(
                "extra", f"`extra` is {kind_of(extra)}, not a mapping.", "Pass your claims by name."
            )
        if taken := sorted(_RESERVED & set(extra or ())):
            raise _invalid(
                "extra",
                f"`extra` has the claim `{taken[0]}`.",
                "Pass it by its own argument, or give your claim another name.",
            )
        try:
            check_data(dict(extra or {}), sys.maxsize, path="extra")
        except InvalidPayload as error:
            raise _invalid("extra", error.message, error.remedy) from None
        now = time.time()
        claims: dict[str, object] = {
            **self._common,
            **identity_claims(
                user,
                kind,
                name=name,
                avatar_url=avatar_url,
                **lists,
                bulk=bulk,
            ),
            "iat": int(now),
            "exp": now + seconds,
            "jti": uuid.uuid4().hex,
            **(extra or {}),
        }
        value = jwt.encode(claims, self._key, self.algorithm, headers={"kid": self.key_id})
        if len(value) > TOKEN_MAX:
            raise _too_long(
                len(value), {"name": name, "avatar_url": avatar_url, **lists, "extra": extra}
            )
        return Token(value, expires_at=now + seconds)

    def jwks(self, *others: TokenSigner) -> dict[str, list[dict[str, Any]]]:
        """The public keys, as JSON to serve at the server's ``iam_jwks_url``.

        Args:
            others: The signers of your other keys, while you replace a key: publish both keys, sign
                with the new one, and remove the old one when its last token has expired.
        """
        return {"keys": [signer.jwk() for signer in (self, *others)]}

    def jwk(self) -> dict[str, Any]:
        """The public key as a JWK with ``kid``, ``alg`` and ``use``."""
        from jwt.algorithms import get_default_algorithms

        algorithm = get_default_algorithms()[self.algorithm]
        jwk = json.loads(algorithm.to_jwk(self._key.public_key()))
        # PyJWT lists the operations of some keys, which `use` already states.
        jwk.pop("key_ops", None)
        return {**jwk, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}


def _remedy(field: str) -> str:
    return f"Pass the `jwt_{field}` of the server's settings, or leave it out."


def _names(field: str, given: object, remedy: str | None = None) -> list[str]:
    if isinstance(given, str):
        problem = "is a string, not a list of strings"
    elif isinstance(given, bytes) or not isinstance(given, Iterable):
        problem = f"is {kind_of(given)}, not a list of strings"
    else:
        names = list(cast("Iterable[object]", given))
        other = next((each for each in names if not isinstance(each, str)), _NONE)
        if other is _NONE:
            return cast("list[str]", names)
        problem = f"contains {kind_of(other)}, and a list of strings is needed"
    remedy = remedy or f"Pass {field}=[…], with each id as a string."
    raise _invalid(field, f"`{field}` {problem}.", remedy)


def _load(pem: str | bytes, password: str | bytes | None) -> tuple[Any, str]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import (
            SECP256R1,
            EllipticCurvePrivateKey,
        )
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise UsageError(
            "Signing tokens needs PyJWT and cryptography.",
            remedy="Install them: pip install 'hanzoai.pubsub[tokens]'.",
        ) from error
    if not isinstance(cast("object", pem), str | bytes):
        raise _invalid(
            "private_key",
            f"`private_key` is {kind_of(pem)}, not the text of a PEM.",
            "Pass what the file contains, such as Path(file).read_text().",
        )
    data = pem.encode() if isinstance(pem, str) else pem
    secret = password.encode() if isinstance(password, str) else password
    try:
        key = load_pem_private_key(data, secret)
    except (ValueError, TypeError):
        raise _invalid(
            "private_key",
            "`private_key` is not the PEM of a private key, or its password is wrong.",
            "Create one with `openssl genpkey -algorithm ed25519`.",
        ) from None  # The words of the library may quote the key.
    if isinstance(key, Ed25519PrivateKey):
        return key, "EdDSA"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key, "ES256"
    if isinstance(key, RSAPrivateKey) and key.key_size >= RSA_BITS:
        return key, "RS256"
    raise _invalid(
        "private_key",
        "`private_key` has a type that the server does not accept.",
        "Use Ed25519, P-256, or RSA with 2,048 bits or more.",
    )


def _invalid(field: str, message: str, remedy: str) -> InvalidOption:
    return InvalidOption(message, field=field, remedy=remedy)


def _too_long(length: int, given: Mapping[str, object]) -> InvalidOption:
    """The error of a token that clients and servers reject; it names the longest argument."""
    field = max(given, key=lambda name: len(json.dumps(given[name])))
    return _invalid(
        field,
        f"The token has {length:,} characters, more than {TOKEN_MAX:,}; the longest part is "
        f"`{field}`.",
        "Pass less: for example, only the sessions that the user opens now.",
    )
