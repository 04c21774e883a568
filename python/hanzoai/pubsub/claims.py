"""The claims of a token that identify its user; signers write them, and the server reads them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLAIMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "user_id": "sub",
        "name": "name",
        "avatar_url": "picture",
        "kind": "kind",
        "orgs": "orgs",
        "sessions_owned": "sessions_owned",
        "sessions_shared": "sessions_shared",
        "agents": "agents",
        "bulk": "bulk",
        "key_id": "jti",
    }
)
"""The claim of each field of an identity; the server's settings can change the names."""


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode it: JSON also has unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def identity_claims(
    user: str,
    kind: str,
    *,
    name: str | None,
    avatar_url: str | None,
    orgs: Sequence[str],
    sessions_owned: Sequence[str],
    sessions_shared: Sequence[str],
    agents: Sequence[str],
    bulk: bool,
) -> dict[str, object]:
    """The claims that identify the user of a token, without empty ones."""
    optional: dict[str, object] = {
        "name": name,
        "avatar_url": avatar_url,
        "orgs": list(orgs),
        "sessions_owned": list(sessions_owned),
        "sessions_shared": list(sessions_shared),
        "agents": list(agents),
        "bulk": bulk,
    }
    return {
        CLAIMS["user_id"]: user,
        CLAIMS["kind"]: kind,
        **{CLAIMS[field]: value for field, value in optional.items() if value},
    }
