"""The authenticator that checks a token, and the cached result."""

from __future__ import annotations

import pytest

from pubsub_server.auth import authenticators
from pubsub_server.auth.authenticators import MAX_TOKEN, RememberedTokens, TokenRouter
from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError


class Inner:
    """Accepts tokens that start with `good`, and counts the checks."""

    def __init__(self, expires_at: int | None = None) -> None:
        self.seen: list[str] = []
        self.expires_at = expires_at

    async def authenticate(self, token: str) -> Identity:
        self.seen.append(token)
        if not token.startswith(("good", "hpk_good")):
            raise ServiceError("token_invalid", "no")
        return Identity(token, expires_at=self.expires_at)


async def test_keys_are_recognized_by_their_prefix_and_all_else_is_a_jwt() -> None:
    jwts, keys = Inner(), Inner()
    router = TokenRouter(jwts, keys)
    for token in ("good.1", "Bearer good.2", "hpk_good", "bearer hpk_good2"):
        await router.authenticate(token)
    assert jwts.seen == ["good.1", "good.2"]
    assert keys.seen == ["hpk_good", "hpk_good2"]


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "unauthenticated"),
        ("Bearer ", "unauthenticated"),
        ("x" * (MAX_TOKEN + 1), "token_invalid"),
        ("hpk_x", "token_invalid"),
        ("x.y.z", "token_invalid"),
        ("gööd", "token_invalid"),
        ("hpk_\ud800", "token_invalid"),
    ],
)
async def test_a_token_that_no_authenticator_accepts_is_refused(token: str, code: str) -> None:
    for router in (TokenRouter(None, None), TokenRouter(Inner(), Inner())):
        with pytest.raises(ServiceError) as caught:
            await router.authenticate(token)
        assert caught.value.code == code


async def test_a_server_without_jwts_says_how_its_keys_start() -> None:
    with pytest.raises(ServiceError, match="accepts only API keys, which start with hpk_"):
        await TokenRouter(None, Inner()).authenticate("copied without its start")


async def test_each_attempt_is_reported() -> None:
    reported: list[tuple[str | None, str | None]] = []

    def tell(identity: Identity | None, code: str | None) -> None:
        reported.append((None if identity is None else identity.user_id, code))

    router = TokenRouter(Inner(), None, tell)
    await router.authenticate("good")
    for token in ("bad", "hpk_x", ""):
        with pytest.raises(ServiceError):
            await router.authenticate(token)
    assert reported == [
        ("good", None),
        (None, "token_invalid"),
        (None, "token_invalid"),
        (None, "unauthenticated"),
    ]


async def test_a_token_is_checked_once_within_the_time_and_again_after_it() -> None:
    now = 0.0
    inner = Inner()
    remembered = RememberedTokens(inner, 5, monotonic=lambda: now)
    assert (await remembered.authenticate("good")).user_id == "good"
    now = 4.9
    assert (await remembered.authenticate("good")).user_id == "good"
    assert len(inner.seen) == 1
    now = 5.0
    await remembered.authenticate("good")
    assert len(inner.seen) == 2


async def test_a_token_that_ends_is_not_remembered_beyond_its_end() -> None:
    now = 999.0
    inner = Inner(expires_at=1_000_000)
    remembered = RememberedTokens(inner, 60, monotonic=lambda: 0, clock=lambda: now)
    await remembered.authenticate("good")
    now = 1000.0
    await remembered.authenticate("good")
    assert len(inner.seen) == 2


async def test_a_refusal_is_not_remembered_and_no_token_is_held() -> None:
    inner = Inner()
    remembered = RememberedTokens(inner, 60)
    for _ in range(2):
        with pytest.raises(ServiceError):
            await remembered.authenticate("bad")
    await remembered.authenticate("good-secret")
    assert len(inner.seen) == 3
    assert b"good-secret" not in b"".join(remembered._known)
    assert len(remembered._known) == 1


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticators, "MAX_REMEMBERED", 10)
    remembered = RememberedTokens(Inner(), 60)
    for number in range(100):
        await remembered.authenticate(f"good{number}")
        assert len(remembered._known) <= 10
