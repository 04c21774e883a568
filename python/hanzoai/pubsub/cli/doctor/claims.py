"""The content of a token, read without verification.

Output contains only times and the algorithm, never the token or names in it.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final, cast

from hanzoai.pubsub.cli.doctor.findings import Finding, failed, ok, warning

_SOON: Final = 300
_TOKEN_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Claims:
    """The part of a JWT that the doctor needs; times are Unix seconds."""

    algorithm: str
    expires_at: float | None
    not_before: float | None
    issued_at: float | None


def read_claims(token: str) -> Claims | None:
    """The claims of a JWT; None if the token is not a JWT."""
    token = token.strip().removeprefix("Bearer ").strip()
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _TOKEN_MAX:
        return None
    try:
        header, body = (_decode(part) for part in parts[:2])
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or not isinstance(body, dict):
        return None
    claims = cast("dict[str, Any]", body)
    algorithm = cast("dict[str, Any]", header).get("alg")
    return Claims(
        algorithm=algorithm if isinstance(algorithm, str) else "?",
        expires_at=_time(claims.get("exp")),
        not_before=_time(claims.get("nbf")),
        issued_at=_time(claims.get("iat")),
    )


def judge_token(token: str, now: float) -> Finding:
    """Problems of a token that are visible without its key.

    Args:
        token: The token, with or without `Bearer `.
        now: Unix seconds.
    """
    if any(ord(character) < 0x21 or ord(character) > 0x7E for character in token.strip()[7:]):
        return failed(
            "token",
            "token_malformed",
            "The token contains spaces, line breaks or other invalid characters.",
            "Copy it again, as one line.",
        )
    claims = read_claims(token)
    if claims is None:
        return ok("token", "not a JWT (an API key?): it contains nothing to check")
    if claims.algorithm.lower() == "none":
        return failed(
            "token",
            "token_unsigned",
            "The token is not signed (alg: none).",
            "Get a token from the issuer that the server trusts.",
        )
    if claims.expires_at is not None and claims.expires_at <= now:
        return failed(
            "token",
            "token_expired",
            f"The token expired {span(now - claims.expires_at)} ago by this machine's clock.",
            "Get a new token. In programs, pass get_token, so that the client renews it.",
        )
    if claims.not_before is not None and claims.not_before > now + 1:
        return failed(
            "token",
            "token_not_yet_valid",
            f"The token is valid only in {span(claims.not_before - now)}.",
            "Check the clocks of this machine and of the issuer.",
        )
    if claims.expires_at is None:
        return warning(
            "token",
            "token_without_end",
            f"JWT ({claims.algorithm}) without `exp`: it never expires.",
            "Configure the issuer to set an expiry.",
        )
    left = claims.expires_at - now
    if left < _SOON:
        return warning(
            "token",
            "token_expires_soon",
            f"JWT ({claims.algorithm}), expires in {span(left)}.",
            "Pass get_token or --token-file, so that it is renewed.",
        )
    return ok("token", f"JWT ({claims.algorithm}), expires in {span(left)}")


def span(seconds: float) -> str:
    """A time span in the unit that fits it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds * 1000:.0f} ms"


def _decode(part: str) -> object:
    padded = part + "=" * (-len(part) % 4)
    return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e12 else None
