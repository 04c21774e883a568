"""A derived address of the HTTP API at which another service answers, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from hanzoai.pubsub.errors import ConnectionFailed, NotFound, PubSubError
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.settings.options import read_options
from tests.python.rest.rig import OLD, QuickClock, Tokens

if TYPE_CHECKING:
    import respx


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b""), (404, b'{"detail": "Not Found"}'), (426, b"Upgrade"), (405, b""), (200, b"<p>")],
)
@pytest.mark.parametrize("rest_url", [None, "http://127.0.0.1:9"])
async def test_the_error_for_an_answer_of_another_service_names_a_derived_address(
    respx_mock: respx.MockRouter, status: int, body: bytes, rest_url: str | None
) -> None:
    options = read_options("ws://127.0.0.1:21057/ws", OLD, rest_url=rest_url, environ={})
    respx_mock.get(f"{options.http_url}/v1/topics/a.b/history").respond(status, content=body)
    rest = Rest(options, Tokens(), QuickClock())
    with pytest.raises(PubSubError) as caught:
        await rest.perform(rest_calls.history("a.b"))
    await rest.close()
    derived = (
        "`rest_url` was derived from `url` as http://127.0.0.1:21057; pass `rest_url` "
        "(HANZO_PUBSUB_REST_URL if HANZO_PUBSUB_URL sets `url`), the URL"
    )
    assert (derived in caught.value.remedy) == (rest_url is None)


@pytest.mark.parametrize("status", [404, 426])
@pytest.mark.parametrize("url", ["ws://127.0.0.1:8057/ws", "ws://127.0.0.2:9/ws"])
async def test_an_address_at_the_websocket_port_is_named_with_the_likely_http_port(
    respx_mock: respx.MockRouter, status: int, url: str
) -> None:
    options = read_options(url, OLD, rest_url="http://127.0.0.1:8057", environ={})
    respx_mock.get(f"{options.http_url}/v1/topics/a.b/history").respond(status, text="no")
    rest = Rest(options, Tokens(), QuickClock())
    with pytest.raises(PubSubError) as caught:
        await rest.perform(rest_calls.history("a.b"))
    await rest.close()
    assert caught.value.message == (
        f"127.0.0.1:8057 answered HTTP {status}: port 8057 is the WebSocket port, not the HTTP "
        "port."
    )
    assert caught.value.remedy == (
        "The HTTP API is probably at http://127.0.0.1:8056: pass this as `rest_url`."
    )


async def test_the_remedy_for_one_address_of_both_names_its_proxy_and_the_option(
    respx_mock: respx.MockRouter,
) -> None:
    url = "https://pubsub.example.com"
    options = read_options("wss://pubsub.example.com/ws", OLD, rest_url=url, environ={})
    respx_mock.get(f"{url}/v1/topics/a.b/history").respond(404, text="no")
    rest = Rest(options, Tokens(), QuickClock())
    with pytest.raises(NotFound) as caught:
        await rest.perform(rest_calls.history("a.b"))
    await rest.close()
    assert caught.value.remedy == (
        "The WebSocket has this address, too: route `/v1/` to the HTTP API, or set `rest_url` to"
        " its address."
    )


async def test_what_the_api_itself_does_not_have_is_no_doubt_about_its_address(
    respx_mock: respx.MockRouter,
) -> None:
    options = read_options("ws://127.0.0.1:21057/ws", OLD, environ={})
    respx_mock.get(f"{options.http_url}/v1/topics/a.b/history").respond(
        404, json={"code": "not_found", "title": "There is no such message."}
    )
    rest = Rest(options, Tokens(), QuickClock())
    with pytest.raises(NotFound) as caught:
        await rest.perform(rest_calls.history("a.b", before="m1"))
    await rest.close()
    assert "derived" not in caught.value.remedy


async def test_a_derived_address_without_a_listener_is_named(
    respx_mock: respx.MockRouter,
) -> None:
    options = read_options(
        "ws://127.0.0.1:21057/ws", OLD, settings={"rest_attempts": 1}, environ={}
    )
    respx_mock.get(f"{options.http_url}/v1/topics/a.b/history").mock(
        side_effect=httpx.ConnectError("nobody")
    )
    rest = Rest(options, Tokens(), QuickClock())
    with pytest.raises(ConnectionFailed) as caught:
        await rest.perform(rest_calls.history("a.b"))
    await rest.close()
    assert "derived from `url` as http://127.0.0.1:21057" in caught.value.remedy
