from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    OperationTimeout,
    TokenExpired,
)
from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import (
    ACCEPTED,
    MESSAGES,
    NEW,
    OLD,
    QuickClock,
    Tokens,
    make_options,
    one,
    problem,
)


async def test_a_refused_token_is_renewed_once(rest: Rest, server: Any, tokens: Tokens) -> None:
    route = server.post(MESSAGES).mock(side_effect=[problem(401, "token_expired"), ACCEPTED])
    await rest.publish(one())
    assert tokens.rejected == [OLD]
    assert route.calls[1].request.headers["Authorization"] == f"Bearer {NEW}"


async def test_a_token_refused_twice_is_an_error(rest: Rest, server: Any, tokens: Tokens) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(401, "token_invalid", detail="forged"))
    with pytest.raises(AuthError, match="forged"):
        await rest.publish(one())
    assert route.call_count == 2
    assert tokens.rejected == [OLD]


async def test_a_fixed_token_is_not_tried_twice(server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(401, "token_expired"))
    rest = Rest(make_options(), Tokens(renewed=None), QuickClock())
    with pytest.raises(TokenExpired) as caught:
        await rest.publish(one())
    assert route.call_count == 1
    assert "callback that returns tokens" in caught.value.remedy
    assert OLD not in str(caught.value)
    await rest.close()


async def test_a_token_callback_that_raises_raises_here(rest: Rest, tokens: Tokens) -> None:
    async def broken() -> str:
        raise AuthError("no login", code="auth_refused")

    tokens.current = broken  # type: ignore[method-assign]
    with pytest.raises(AuthError, match="no login"):
        await rest.publish(one())


async def test_a_token_that_does_not_come_leaves_no_outcome_unknown(clock: QuickClock) -> None:
    class Never(Tokens):
        async def current(self) -> str:
            return await asyncio.Future[str]()

    rest = Rest(make_options(), Never(), clock, random=lambda: 0.5)
    with pytest.raises(OperationTimeout, match="get_token returned no token") as caught:
        await rest.publish(one(), timeout=0.01)
    assert not caught.value.outcome_unknown
    await rest.close()
