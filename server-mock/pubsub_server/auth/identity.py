"""`Identity`, and how the claims of a token become one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from hanzoai.pubsub.claims import CLAIMS, is_encodable
from pubsub_server.errors import ServiceError
from pubsub_server.settings import documents

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["user", "service", "admin", "agent"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_ID = 128
"""Maximum characters of an identifier in a token."""

MAX_NAMES = 10_000
"""Maximum organizations, sessions or agents that one token may list."""

NOBODY: frozenset[str] = frozenset()

MAX_SECONDS = 1e11
"""Range of Unix seconds in a token."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a verified token. HIP-56, Channel Access Control.

    Attributes:
        user_id: Identifies the person, service or agent.
        kind: `user`, `service`, `admin` or `agent`.
        name: Display name.
        avatar_url: URL of a picture.
        orgs: Organizations of the user. Connections count against each of them.
        sessions_owned: Chat sessions that the user owns.
        sessions_shared: Chat sessions that are shared with the user.
        agents: Agents that the user has access to.
        bulk: Whether REST batches have the higher rate limit `publish_rate_bulk`.
        expires_at: Unix milliseconds at which the token expires; None if it does not.
        key_id: Id of the token or API key, for the audit log; never the token itself.
        anonymous: Whether the client is unauthenticated: a connection of a listener without an
            identity.
    """

    user_id: str
    kind: Kind = "user"
    name: str = ""
    avatar_url: str | None = None
    orgs: frozenset[str] = frozenset()
    sessions_owned: frozenset[str] = frozenset()
    sessions_shared: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    bulk: bool = False
    expires_at: int | None = None
    key_id: str | None = None
    anonymous: bool = False

    @property
    def service(self) -> bool:
        """Whether it may publish if no rule decides. HIP-56, Publish permissions."""
        return self.kind == "service"

    @property
    def admin(self) -> bool:
        """Whether it may do everything."""
        return self.kind == "admin"


class ClaimError(ServiceError):
    """A claim is missing or has a wrong value.

    Attributes:
        claim: Its name.
        expected: What it must be.
    """

    def __init__(self, claim: str, expected: str) -> None:
        self.claim = claim
        self.expected = expected
        super().__init__("token_invalid", f"the claim `{claim}` of the token is not {expected}")


def strip_bearer(token: str) -> str:
    """The token without the optional word `Bearer`. HIP-56 WebSocket."""
    return re.sub(r"^\s*bearer\s+", "", token, flags=re.IGNORECASE).strip()


def identity_from_claims(
    claims: Mapping[str, object], names: Mapping[str, str] = CLAIMS
) -> Identity:
    """The identity in verified claims.

    Args:
        claims: Payload of a token whose signature is valid.
        names: Claim by field of `Identity`; a missing field has the default name.

    Raises:
        ClaimError: `token_invalid` for a missing or mistyped claim, naming it.
    """
    named = {**CLAIMS, **names}
    expires = claims.get("exp")
    if expires is not None and (
        isinstance(expires, bool)
        or not isinstance(expires, int | float)
        or not abs(expires) < MAX_SECONDS
    ):
        raise ClaimError("exp", "a number of seconds")
    kind = claims.get(named["kind"], "user")
    if kind not in KINDS:
        raise ClaimError(named["kind"], "one of " + ", ".join(KINDS))
    user_id = _text(claims, named["user_id"])
    if not user_id:
        raise ClaimError(named["user_id"], "the id of a user")
    bulk = claims.get(named["bulk"])
    if bulk is not None and not isinstance(bulk, bool):
        raise ClaimError(named["bulk"], "true or false")
    return Identity(
        user_id=user_id,
        kind=kind,
        name=_text(claims, named["name"]) or user_id,
        avatar_url=_text(claims, named["avatar_url"], limit=2048),
        orgs=_names(claims, named["orgs"]),
        sessions_owned=_names(claims, named["sessions_owned"]),
        sessions_shared=_names(claims, named["sessions_shared"]),
        agents=_names(claims, named["agents"]),
        bulk=bulk is True,
        expires_at=None if expires is None else round(expires * 1000),
        key_id=_text(claims, named["key_id"]),
    )


def _text(claims: Mapping[str, object], claim: str, limit: int = MAX_ID) -> str | None:
    value = claims.get(claim)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > limit or not is_encodable(value):
        raise ClaimError(claim, f"text of at most {limit} characters")
    return value


def _texts(claims: Mapping[str, object], claim: str) -> tuple[str, ...]:
    value = claims.get(claim)
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else documents.sequence(value)
    if items is None or len(items) > MAX_NAMES:
        raise ClaimError(claim, f"a list of at most {MAX_NAMES} texts")
    names = [item for item in items if isinstance(item, str) and 0 < len(item) <= MAX_ID]
    if len(names) != len(items) or not is_encodable("".join(names)):
        raise ClaimError(claim, f"a list of strings of 1 to {MAX_ID} characters")
    return tuple(names)


def _names(claims: Mapping[str, object], claim: str) -> frozenset[str]:
    names = _texts(claims, claim)
    # Share one empty set: a separate one costs 216 bytes per connection, and most lists are empty.
    return frozenset(names) if names else NOBODY
