"""The console page: its contents, its access rules, and sign-in without a token."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from pubsub_server.auth.loopback_peer import owner_of_peer
from pubsub_server.listeners.http import dev_sign_in
from pubsub_server.listeners.http.console import FILES
from pubsub_server.settings.config import Settings
from pubsub_server.testing import RunningServer, running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

WHO = {"user": "ana", "kind": "admin"}


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running_server() as running:
        yield running


@pytest.fixture
async def browser(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(base_url=server.http) as client:
        yield client


def from_page(server: RunningServer, **changes: str | None) -> dict[str, str]:
    """Return the headers of the page, with changes; None removes a header."""
    headers = {
        "Host": server.http.removeprefix("http://"),
        "Origin": server.http,
        "Sec-Fetch-Site": "same-origin",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return {name: value for name, value in headers.items() if value is not None}


def refused(answer: httpx.Response, status: int = 403, code: str = "forbidden") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    assert "token" not in body
    return body


# ---------------------------------------------------------------- the page


async def test_the_page_runs_its_own_scripts_only_and_reaches_only_its_server(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    page = await browser.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        each.strip().split(" ", 1)
        for each in page.headers["content-security-policy"].split(";")
        if " " in each.strip()
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["connect-src"] == f"'self' {server.ws}"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    # The page contains nothing that its content security policy blocks.
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?://", page.text)


async def test_every_file_that_the_page_names_is_served_with_its_type(
    browser: httpx.AsyncClient,
) -> None:
    page = (await browser.get("/")).text
    named = re.findall(r'(?:src|href)="(console/[^"]+)"', page)
    assert {"console/console.js", "console/console.css"} <= set(named)
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for path in {*named, *(f"console/{each.name}" for each in FILES.glob("*.js"))}:
        answer = await browser.get("/" + path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == f"{types[path.rsplit('.')[-1]]}; charset=utf-8"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/console/console.js"])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_file_that_has_not_changed_is_not_sent_again(
    browser: httpx.AsyncClient, path: str, encoding: str
) -> None:
    headers = {"Accept-Encoding": encoding}
    first = await browser.get(path, headers=headers)
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["vary"] == "Accept-Encoding"
    assert first.headers.get("content-encoding", "identity") == encoding
    known = {**headers, "If-None-Match": first.headers["etag"]}
    again = await browser.get(path, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = await browser.get(path, headers={**headers, "If-None-Match": '"other"'})
    assert other.content == first.content


@pytest.mark.parametrize(
    "path", ["/console/index.html", "/console/nothing.js", "/console/..%2fopenapi.json", "/console"]
)
async def test_there_is_nothing_else_below_console(browser: httpx.AsyncClient, path: str) -> None:
    refused(await browser.get(path), 404, "not_found")


async def test_no_other_origin_may_read_the_console(browser: httpx.AsyncClient) -> None:
    for path in ("/", "/console/config.json", "/console/console.js"):
        answer = await browser.get(path, headers={"Origin": "https://x.example"})
        assert "access-control-allow-origin" not in answer.headers
    preflight = await browser.options(
        "/console/token",
        headers={"Origin": "https://x.example", "Access-Control-Request-Method": "POST"},
    )
    assert "access-control-allow-origin" not in preflight.headers


# ---------------------------------------------------------------- where the socket is


async def test_the_page_gets_the_address_of_the_socket(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    config = (await browser.get("/console/config.json")).json()
    assert config["ws"] == server.ws
    assert config["dev_sign_in"] is True
    assert config["version"]


async def test_the_socket_is_beside_the_name_that_the_browser_uses(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    port = server.http.rsplit(":", 1)[1]
    answer = await browser.get("/console/config.json", headers={"Host": f"localhost:{port}"})
    assert answer.json()["ws"] == server.ws.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("host", ["a;script-src *", "a b", "x'y", "a/b", "", 'a"b'])
async def test_an_invalid_host_gets_into_no_policy(
    server: RunningServer, browser: httpx.AsyncClient, host: str
) -> None:
    page = await browser.get("/", headers={"Host": host})
    if page.status_code == 200:
        assert f"connect-src 'self' {server.ws};" in page.headers["content-security-policy"]


async def test_behind_a_proxy_the_socket_is_at_the_same_origin() -> None:
    async with (
        running_server(behind_tls_proxy=True, iam_jwks_url="https://iam.example/keys") as server,
        http_client(base_url=server.http) as browser,
    ):
        headers = {"Host": "pubsub.example.com"}
        config = (await browser.get("/console/config.json", headers=headers)).json()
        page = await browser.get("/", headers=headers)
    assert config == {
        "ws": "wss://pubsub.example.com/ws",
        "version": config["version"],
        "dev_sign_in": False,
    }
    policy = page.headers["content-security-policy"]
    assert "connect-src 'self' wss://pubsub.example.com/ws;" in policy


async def test_the_address_of_the_socket_may_be_set() -> None:
    url = "wss://live.example.com:8443/pubsub/ws"
    async with (
        running_server(ws_url=url) as server,
        http_client(base_url=server.http) as browser,
    ):
        assert (await browser.get("/console/config.json")).json()["ws"] == url
        page = await browser.get("/")
    assert f"connect-src 'self' {url};" in page.headers["content-security-policy"]


@pytest.mark.parametrize("url", ["https://a.example/ws", "ws://a;b", "wss://a b", "wss://a/ws?x=1"])
def test_an_address_that_is_no_socket_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a ws:// or wss:// URL"):
        Settings(ws_url=url)


# ---------------------------------------------------------------- signing in without a token


async def test_its_own_page_is_signed_in_for_a_short_time(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    answer = await browser.post("/console/token", json=WHO, headers=from_page(server))
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    given = answer.json()
    headers = {"Authorization": f"Bearer {given['token']}"}
    session = (await browser.get("/v1/session", headers=headers)).json()
    assert session["user_id"] == "ana"
    assert abs(session["expires_at"] - given["expires_at"]) < 1_000
    # Both are rounded to milliseconds, and a fast machine answers in the same one.
    assert given["expires_at"] - session["server_time"] <= dev_sign_in.TTL * 1000 + 1
    assert (await browser.get("/v1/topics", headers=headers)).status_code == 200


async def test_localhost_is_this_machine_too(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    name = "localhost:" + server.http.rsplit(":", 1)[1]
    headers = from_page(server, Host=name, Origin=f"http://{name}")
    answer = await browser.post("/console/token", json=WHO, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"X_Forwarded_For": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
        {"Via": "1.1 tunnel"},
    ],
)
async def test_other_sites_and_forwarded_requests_are_not_signed_in(
    server: RunningServer, browser: httpx.AsyncClient, changes: dict[str, str | None]
) -> None:
    headers = from_page(server, **changes)
    refused(await browser.post("/console/token", json=WHO, headers=headers))


@pytest.mark.parametrize(
    "name",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2", "[::]"],
)
async def test_a_foreign_name_that_leads_here_is_not_signed_in(
    server: RunningServer, browser: httpx.AsyncClient, name: str
) -> None:
    host = f"{name}:{server.http.rsplit(':', 1)[1]}"
    headers = from_page(server, Host=host, Origin=f"http://{host}")
    refused(await browser.post("/console/token", json=WHO, headers=headers))


async def test_another_port_of_this_machine_is_another_origin(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    for headers in (
        from_page(server, Origin="http://127.0.0.1:3000"),
        from_page(server, Host="127.0.0.1:3000", Origin="http://127.0.0.1:3000"),
        from_page(server, Origin=server.http.replace("127.0.0.1", "localhost")),
        from_page(server, Origin=server.http.replace("http:", "https:")),
    ):
        refused(await browser.post("/console/token", json=WHO, headers=headers))


async def test_a_form_of_another_page_is_refused_by_its_type_even_with_our_origin(
    server: RunningServer, browser: httpx.AsyncClient
) -> None:
    answer = await browser.post("/console/token", data=WHO, headers=from_page(server))
    refused(answer, 415, "unsupported")


async def test_another_machine_is_never_signed_in(
    server: RunningServer, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("127.0.0.1", int(server.http.rsplit(":", 1)[1]))
    for peer, status in (("192.0.2.7", 403), ("fe80::1%eth0", 403), ("127.0.0.1", 200)):
        ends = (here, (peer, 50_000))
        monkeypatch.setattr(dev_sign_in, "_ends", lambda _, ends=ends: ends)  # pyright: ignore[reportUnknownLambdaType]
        answer = await browser.post("/console/token", json=WHO, headers=from_page(server))
        assert answer.status_code == status, peer


async def test_another_user_of_the_machine_is_not_signed_in(
    server: RunningServer, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.server.console is not None
    for owner, status in ((os.geteuid() + 1, 403), (os.geteuid(), 200), (0, 200), (None, 200)):

        def tell(peer: object, here: object, owner: int | None = owner) -> int | None:
            return owner

        monkeypatch.setattr(server.server.console.sign_in, "_owner", tell)
        answer = await browser.post("/console/token", json=WHO, headers=from_page(server))
        assert answer.status_code == status, owner


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "user"), ({"user": ""}, "user"), ({"user": "a b"}, "user"), ({"user": 7}, "user"),
     ({"user": "a" * 65}, "user"), ({"user": "a", "kind": "root"}, "kind")],
)  # fmt: skip
async def test_the_requested_identity_is_checked(
    server: RunningServer, browser: httpx.AsyncClient, body: dict[str, object], field: str
) -> None:
    answer = await browser.post("/console/token", json=body, headers=from_page(server))
    assert refused(answer, 400, "invalid_option")["field"] == field


async def test_the_console_signs_in_only_on_a_development_server() -> None:
    async with (
        running_server(behind_tls_proxy=True, iam_jwks_url="https://iam.example/keys") as server,
        http_client(base_url=server.http) as browser,
    ):
        answer = await browser.post("/console/token", json=WHO, headers=from_page(server))
        assert answer.status_code in {404, 405}


# ---------------------------------------------------------------- whose connection it is


def test_the_kernel_table_names_the_owner_of_a_connection(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    words = "0100007F" if sys.byteorder == "little" else "7F000001"
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        f"   0: {words}:1F78 {words}:C001 01 00000000:00000000 00:00000000 00000000  0  0 1\n"
        f"   1: {words}:C001 {words}:1F78 01 00000000:00000000 00:00000000 00000000 1007 0 2\n",
        encoding="ascii",
    )
    peer, here = ("127.0.0.1", 0xC001), ("127.0.0.1", 0x1F78)
    assert owner_of_peer(peer, here, {4: table}) == 1007
    assert owner_of_peer(("127.0.0.1", 1), here, {4: table}) is None
    assert owner_of_peer(peer, here, {4: tmp_path / "none"}) is None
