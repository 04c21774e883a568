from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    OperationTimeout,
    PubSubError,
    TokenExpired,
)
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.runtime.tokens import TokenSource
from hanzoai.pubsub.settings.options import read_options
from tests.python.rest.rig import (
    ACCEPTED,
    BASE,
    MESSAGES,
    NEW,
    OLD,
    QuickClock,
    Tokens,
    make_options,
    one,
    problem,
)

if TYPE_CHECKING:
    from hanzoai.pubsub.values import TokenContext


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
    assert "callback that returns a new token" in caught.value.remedy
    assert OLD not in str(caught.value)
    await rest.close()


@pytest.mark.parametrize("status", [400, 401, 403, 502])
async def test_an_error_does_not_quote_the_token_that_a_gateway_echoes(
    server: Any, status: int
) -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        header = request.headers["Authorization"]
        body = {"message": f"'{header}' is not a valid header", "remedy": header}
        return httpx.Response(status, text=json.dumps(body).replace("/", r"\/"))

    server.post(MESSAGES).mock(side_effect=echo)
    tokens = Tokens(renewed="a/renewed-secret-token")
    tokens.token = "a/first-secret-token"
    rest = Rest(make_options(), tokens, QuickClock())
    with pytest.raises(PubSubError, match=r"'Bearer \[token\]' is not a valid header") as caught:
        await rest.publish(one())
    assert "secret-token" not in f"{caught.value} {caught.value!r} {caught.value.remedy}"
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


async def test_a_token_that_replaces_a_rejected_one_is_counted_as_accepted_by_the_answer(
    server: Any,
) -> None:
    attempts: list[int] = []

    async def get_token(context: TokenContext) -> str:
        if context.reason == "rejected":
            attempts.append(context.attempt)
        return f"t{len(attempts)}"

    tokens = TokenSource(read_options(BASE, get_token=get_token), QuickClock())
    rest = Rest(make_options(), tokens, QuickClock())
    server.post(MESSAGES).mock(side_effect=[problem(401, "token_expired"), ACCEPTED] * 3)
    for _ in range(3):
        await rest.publish(one())
    assert attempts == [0, 0, 0]
    await rest.close()
