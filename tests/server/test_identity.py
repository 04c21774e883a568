"""Claims become an identity."""

from __future__ import annotations

import pytest

from pubsub_server.auth.identity import MAX_NAMES, Identity, identity_from_claims, strip_bearer
from pubsub_server.errors import ServiceError


def refused(claims: dict[str, object]) -> str:
    with pytest.raises(ServiceError) as caught:
        identity_from_claims(claims)
    assert caught.value.code == "token_invalid"
    return caught.value.message


def test_all_claims_are_read() -> None:
    identity = identity_from_claims(
        {
            "sub": "alice",
            "name": "Alice",
            "picture": "https://a.example/a.png",
            "kind": "agent",
            "orgs": ["acme", "other"],
            "sessions_owned": ["s1"],
            "sessions_shared": ["s2"],
            "agents": ["bot1"],
            "exp": 1740307200.5,
            "jti": "t1",
            "unknown": {"is": "ignored"},
        }
    )
    assert identity == Identity(
        user_id="alice",
        kind="agent",
        name="Alice",
        avatar_url="https://a.example/a.png",
        orgs=frozenset({"acme", "other"}),
        sessions_owned=frozenset({"s1"}),
        sessions_shared=frozenset({"s2"}),
        agents=frozenset({"bot1"}),
        expires_at=1740307200500,
        key_id="t1",
    )


def test_a_token_with_few_claims_is_a_user_named_by_the_id() -> None:
    identity = identity_from_claims({"sub": "alice"})
    assert (identity.kind, identity.name, identity.expires_at) == ("user", "alice", None)
    assert not identity.service
    assert not identity.admin


def test_one_organization_may_be_a_text() -> None:
    assert identity_from_claims({"sub": "a", "orgs": "acme"}).orgs == {"acme"}


def test_other_names_of_claims_may_be_configured() -> None:
    identity = identity_from_claims(
        {"id": "a", "owner": "acme"}, {"user_id": "id", "orgs": "owner"}
    )
    assert identity.user_id == "a"
    assert identity.orgs == {"acme"}


@pytest.mark.parametrize(
    ("claims", "claim"),
    [
        ({}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * 129}, "sub"),
        ({"sub": "a", "kind": "root"}, "kind"),
        ({"sub": "a", "kind": ["admin"]}, "kind"),
        ({"sub": "a", "orgs": 7}, "orgs"),
        ({"sub": "a", "orgs": ["acme", 7]}, "orgs"),
        ({"sub": "a", "orgs": [""]}, "orgs"),
        ({"sub": "a", "agents": ["b"] * (MAX_NAMES + 1)}, "agents"),
        ({"sub": "a", "exp": "soon"}, "exp"),
        ({"sub": "a", "exp": True}, "exp"),
        ({"sub": "a", "exp": float("inf")}, "exp"),
        ({"sub": "a", "picture": "x" * 2049}, "picture"),
    ],
)
def test_a_mistyped_claim_is_named(claims: dict[str, object], claim: str) -> None:
    assert f"`{claim}`" in refused(claims)


@pytest.mark.parametrize("text", ["t", "Bearer t", "bearer  t ", "BEARER t", " Bearer t"])
def test_the_word_bearer_may_be_there_or_not(text: str) -> None:
    assert strip_bearer(text) == "t"
