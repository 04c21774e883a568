"""Each test has one broken environment: the doctor names the first cause."""

from __future__ import annotations

import datetime
import ssl
import sys
from typing import TYPE_CHECKING

import pytest
import trustme
from aiohttp import web

from hanzoai.pubsub.cli.doctor.findings import Status
from hanzoai.pubsub.cli.doctor.network import Address, check_tcp
from pubsub_server.testing import running_server
from tests.cli.lab import (
    HOST,
    SHORT,
    Fake,
    cause,
    diagnose,
    found,
    hang_up,
    listener,
    proxy,
    swallow,
    token,
)
from tests.mutual_tls import rejecting
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


def urls(http: int, ws: int, *, host: str = HOST, secure: bool = False) -> tuple[str, str]:
    s = "s" if secure else ""
    return f"ws{s}://{host}:{ws}/ws", f"http{s}://{host}:{http}"


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Make the client trust a CA during the test."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    return made


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def test_a_healthy_server_has_no_cause() -> None:
    fake = Fake()
    async with fake.run() as (http, ws):
        report = await diagnose(*urls(http, ws), topics=("chat.session.1",))
    assert report.healthy
    names = [finding.name for finding in report.findings]
    assert names == [
        *("dns", "tcp", "tls", "http", "websocket", "auth", "sse", "clock", "token"),
        *("access", "payload"),
    ]
    others = {f.name for f in report.findings if f.status is not Status.OK}
    assert others == {"tls"}, "unencrypted on this machine: skipped, not failed"
    assert len(fake.received[1]) > 262_000, "a frame of nearly the limit was sent"


async def test_one_address_accepts_and_two_accept_connections() -> None:
    async with listener(swallow) as port, listener(swallow) as other:
        one = await check_tcp([Address("ws", HOST, port)], 3)
        two = await check_tcp([Address("ws", HOST, port), Address("http", HOST, other)], 3)
    assert one.message == f"{HOST}:{port} accepts connections"
    assert two.message == f"{HOST}:{port} and {HOST}:{other} accept connections"


async def test_real_servers_are_told_apart_by_their_ports() -> None:
    async with running_server() as server:
        swapped = server.ws.replace("ws://", "http://").removesuffix("/ws")
        well = await diagnose(server.ws, server.http, bearer=server.token())
        http_for_ws = await diagnose(server.http.replace("http", "ws") + "/ws")
        ws_for_http = await diagnose(server.ws)
        both_swapped = await diagnose(server.ws, swapped)
    assert well.healthy
    assert cause(http_for_ws) == "wrong_port_http"
    assert cause(ws_for_http) == "wrong_port_websocket"
    assert cause(both_swapped) == "wrong_port_websocket"


async def test_a_real_server_that_refuses_or_hangs_is_reported() -> None:
    async with running_server() as server:
        assert server.faults is not None
        server.faults.perform({"fault": "refuse"})
        refusing = await diagnose(server.ws, server.http, bearer=server.token())
        server.faults.perform({"fault": "refuse", "on": False})
        well = await diagnose(server.ws, server.http, bearer=server.token())
    assert refusing.cause is not None
    assert refusing.cause.name in {"http", "websocket", "auth"}
    assert well.healthy


async def test_a_closed_port_is_named(closed_port: int) -> None:
    report = await diagnose(f"ws://{HOST}:{closed_port}/ws")
    assert cause(report) == "port_closed"
    assert str(closed_port) in found(report, "tcp").message
    assert found(report, "auth").status is Status.SKIPPED
    assert found(report, "clock").message == "not tried"


async def test_a_host_without_address_is_named() -> None:
    report = await diagnose("wss://pubsub.invalid:8057/ws")
    assert cause(report) == "dns_unresolved"


async def test_the_http_port_instead_of_the_websocket_port_is_recognized() -> None:
    async with Fake().run() as (http, _ws):
        report = await diagnose(f"ws://{HOST}:{http}/ws")
    assert cause(report) == "wrong_port_http"


async def test_the_websocket_port_instead_of_the_http_port_is_recognized() -> None:
    async with Fake().run() as (_http, ws):
        report = await diagnose(f"ws://{HOST}:{ws}/ws")
    assert cause(report) == "wrong_port_websocket"
    assert report.cause is not None
    assert "--rest-url" in report.cause.remedy


async def test_a_proxy_that_serves_both_ports_under_a_path_is_named_with_it() -> None:
    async def socket(request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        return answer

    app = web.Application()
    app.router.add_get("/pubsub/ws", socket)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        port: int = runner.addresses[0][1]
        report = await diagnose(f"ws://{HOST}:{port}/pubsub/ws")
    finally:
        await runner.cleanup()
    assert report.cause is not None
    assert report.cause.remedy.endswith(f"under /pubsub, pass --url http://{HOST}:{port}/pubsub.")


async def test_another_web_server_is_recognized() -> None:
    async with Fake(health=404).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "wrong_port_other"


async def test_a_certificate_of_an_unknown_authority_is_reported() -> None:
    stranger = trustme.CA().issue_cert(HOST)
    async with Fake(tls=serving(stranger)).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "certificate_untrusted"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read (No such file or directory)"), ("text", "has no certificates in PEM")],
)
async def test_a_file_of_authorities_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, problem: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with Fake(tls=serving(trustme.CA().issue_cert(HOST))).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "certificate_untrusted"
    assert report.cause is not None
    assert report.cause.remedy == f"Correct SSL_CERT_FILE: it names {file}, which {problem}."


async def test_an_empty_name_of_a_file_of_authorities_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "")
    async with Fake(tls=serving(trustme.CA().issue_cert(HOST))).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "certificate_untrusted"
    assert report.cause is not None
    assert report.cause.remedy.startswith("Unset SSL_CERT_FILE: it is empty")


async def test_an_expired_certificate_is_reported(authority: trustme.CA) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    old = authority.issue_cert(HOST, not_before=long_ago, not_after=long_ago.replace(year=2021))
    async with Fake(tls=serving(old)).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "certificate_expired"


async def test_a_certificate_for_another_name_is_reported(authority: trustme.CA) -> None:
    other = authority.issue_cert("elsewhere.example")
    async with Fake(tls=serving(other)).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "certificate_wrong_name"


async def test_a_certificate_that_ends_soon_is_a_warning(authority: trustme.CA) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    async with Fake(tls=serving(authority.issue_cert(HOST, not_after=soon))).run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert report.healthy
    assert found(report, "tls").code == "certificate_expires_soon"


async def test_a_server_that_requires_a_client_certificate_is_reported(
    authority: trustme.CA,
) -> None:
    with rejecting(authority, HOST) as port:
        report = await diagnose(*urls(port, port, secure=True))
    assert cause(report) == "client_certificate_required"
    assert report.cause is not None
    assert "ssl_context" in report.cause.remedy


async def test_an_unencrypted_url_at_a_tls_port_is_reported(authority: trustme.CA) -> None:
    async with Fake(tls=serving(authority.issue_cert(HOST))).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "tls_required"
    assert report.cause is not None
    assert "wss://" in report.cause.remedy


async def test_an_encrypted_url_at_a_plain_port_is_reported() -> None:
    async with Fake().run() as (http, ws):
        report = await diagnose(*urls(http, ws, secure=True))
    assert cause(report) == "tls_not_spoken"
    assert report.cause is not None
    assert "http://" in report.cause.remedy


async def test_a_proxy_that_buffers_the_event_stream_is_reported() -> None:
    async with Fake().run() as (http, ws), listener(proxy(http, buffer=True)) as before:
        report = await diagnose(*urls(before, ws), patience=SHORT)
    assert cause(report) == "sse_buffered"
    assert report.cause is not None
    assert "proxy_buffering" in report.cause.remedy


async def test_the_next_comment_is_waited_for_only_when_asked_to() -> None:
    async with Fake(second_chunk=b": keepalive\n\n").run() as (http, ws):
        report = await diagnose(*urls(http, ws), wait_keepalive=True)
    assert report.healthy
    assert "the next comment after" in found(report, "sse").message
    async with Fake(second_chunk=b"").run() as (http, ws):
        assert (await diagnose(*urls(http, ws))).healthy
        report = await diagnose(*urls(http, ws), wait_keepalive=True)
    assert cause(report) == "sse_cut"


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (Fake(stream_status=503), "unavailable"),
        (Fake(stream_type="text/html"), "sse_wrong_type"),
    ],
)
async def test_an_invalid_event_stream_is_reported(broken: Fake, code: str) -> None:
    async with broken.run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == code


async def test_what_goes_through_a_proxy_of_the_environment_is_not_tried_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@127.0.0.1:1")
    report = await diagnose("wss://pubsub.invalid/ws")
    assert [finding.status for finding in report.findings[:3]] == [Status.SKIPPED] * 3
    assert "127.0.0.1:1" in found(report, "dns").message
    assert cause(report) == "proxy_failed"
    assert "secret" not in str([finding.to_json() for finding in report.findings])


async def test_a_server_on_this_machine_is_reached_without_the_proxy_as_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with Fake().run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert not cause(report)


@pytest.mark.parametrize("missing", ["socksio", None])
async def test_a_proxy_that_cannot_be_used_is_reported(
    monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    if missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("all_proxy", "socks5h://u:s3cr3t@127.0.0.1:1" if missing else "other://x")
    report = await diagnose("wss://pubsub.invalid/ws")
    assert cause(report) == "proxy_failed"
    remedy = "pip install" if missing else "ALL_PROXY"
    assert remedy in (found(report, "http").remedy or "")
    assert "s3cr3t" not in str([finding.to_json() for finding in report.findings])


async def test_a_proxy_that_blocks_the_upgrade_is_reported() -> None:
    async with Fake().run() as (http, ws), listener(proxy(ws, strip_upgrade=True)) as before:
        report = await diagnose(*urls(http, before))
    assert cause(report) == "upgrade_blocked"
    assert found(report, "sse").status is Status.OK, "what works meanwhile is tried"


@pytest.mark.parametrize("offset", [600.0, -600.0])
async def test_clocks_that_differ_are_reported_with_their_direction(offset: float) -> None:
    async with Fake(clock=offset).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "clock_skew"
    assert ("behind" if offset > 0 else "ahead") in found(report, "clock").message


async def test_an_expired_token_is_reported_with_its_age() -> None:
    refusal = {"code": "token_expired", "message": "expired"}
    async with Fake(refuse=refusal).run() as (http, ws):
        report = await diagnose(*urls(http, ws), bearer=token(expires_in=-180))
    assert cause(report) == "token_expired"
    assert "3 min ago" in found(report, "auth").message
    assert found(report, "token").status is Status.FAILED


async def test_a_token_refused_as_expired_that_is_not_points_at_the_clocks() -> None:
    refusal = {"code": "token_expired", "message": "expired"}
    async with Fake(refuse=refusal).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert "clocks" in found(report, "auth").remedy


async def test_a_forged_token_is_reported() -> None:
    refusal = {"code": "token_invalid", "message": "signature does not match"}
    async with Fake(refuse=refusal).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "token_invalid"
    assert "signature" in found(report, "auth").message


async def test_a_missing_token_is_told() -> None:
    async with Fake().run() as (http, ws):
        report = await diagnose(*urls(http, ws), bearer="")
    assert cause(report) == "token_missing"


async def test_a_forbidden_topic_is_reported_with_its_rule() -> None:
    no = {"subscribe": False, "publish": False, "reason": "rule 2 requires the owner"}
    async with Fake(access=no).run() as (http, ws):
        report = await diagnose(*urls(http, ws), topics=("chat.session.x",))
    assert cause(report) == "forbidden"
    assert "rule 2" in found(report, "access").message


@pytest.mark.parametrize(
    ("close", "code"),
    [
        ((1013, "unavailable"), "unavailable"),
        ((4429, "connection_limit"), "connection_limit"),
        ((1001, "going_away"), "going_away"),
        ((1008, "no"), "closed"),
    ],
)
async def test_a_server_that_refuses_is_recognized_by_its_close_code(
    close: tuple[int, str], code: str
) -> None:
    async with Fake(close=close).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == code


async def test_a_server_that_is_starting_is_reported() -> None:
    async with Fake(health=503).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "server_unavailable"


async def test_a_port_that_never_answers_is_reported() -> None:
    async with listener(swallow) as hole:
        report = await diagnose(f"ws://{HOST}:{hole}/ws", patience=SHORT)
    assert cause(report) == "http_silent"


async def test_a_port_that_ignores_the_tls_handshake_is_reported() -> None:
    async with listener(swallow) as hole:
        report = await diagnose(f"wss://{HOST}:{hole}/ws", patience=SHORT)
    assert cause(report) == "tls_timeout"


async def test_a_port_that_ignores_only_the_websocket_is_reported() -> None:
    async with Fake().run() as (http, _ws), listener(swallow) as hole:
        report = await diagnose(*urls(http, hole), patience=SHORT)
    assert cause(report) == "websocket_silent"


async def test_a_port_that_closes_the_connection_is_reported() -> None:
    async with listener(hang_up) as port:
        report = await diagnose(f"ws://{HOST}:{port}/ws")
    assert cause(report) == "http_failed"


async def test_a_limit_on_frames_below_that_of_the_server_is_reported() -> None:
    async with Fake(largest_frame=65_536).run() as (http, ws):
        report = await diagnose(*urls(http, ws))
    assert cause(report) == "payload_cut"


async def test_a_socket_that_ends_while_the_stream_is_checked_is_not_a_limit_on_frames() -> None:
    async with Fake(stream_outlasts_sockets=True, second_chunk=b"").run() as (http, ws):
        report = await diagnose(*urls(http, ws), wait_keepalive=True)
    assert cause(report) == "sse_cut"
    assert found(report, "payload").status is Status.OK


def _elsewhere(_host: str) -> bool:
    return False


async def test_an_unencrypted_url_of_another_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hanzoai.pubsub.cli.doctor.examination.is_loopback", _elsewhere)
    async with Fake().run() as (http, ws):
        report = await diagnose(*urls(http, ws))
        allowed = await diagnose(*urls(http, ws), allow_insecure=True)
    assert cause(report) == "insecure_url"
    assert allowed.healthy


@pytest.mark.parametrize(
    ("bearer", "code"),
    [
        (token(algorithm="none"), "token_unsigned"),
        ("Bearer abc def\nghi", "token_malformed"),
        (token(expires_in=-5), "token_expired"),
    ],
    ids=["unsigned", "malformed", "expired"],
)
async def test_what_is_wrong_with_a_token_is_seen_without_its_key(bearer: str, code: str) -> None:
    async with Fake().run() as (http, ws):
        report = await diagnose(*urls(http, ws), bearer=bearer)
    assert found(report, "token").code == code


async def test_no_finding_repeats_the_token(closed_port: int) -> None:
    secret = token()
    async with Fake(refuse={"code": "token_invalid", "message": "no"}).run() as (http, ws):
        reports = [await diagnose(*urls(http, ws), bearer=secret)]
    reports.append(await diagnose(f"ws://{HOST}:{closed_port}/ws", bearer=secret))
    reported = "".join(str(finding.to_json()) for report in reports for finding in report.findings)
    assert not any(part in reported for part in secret.split("."))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
