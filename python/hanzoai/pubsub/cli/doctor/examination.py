"""Runs the checks in order, and skips those that depend on a failed one."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from hanzoai.pubsub.cli.doctor.claims import judge_token, span
from hanzoai.pubsub.cli.doctor.findings import Finding, Status, failed, ok, skipped, warning
from hanzoai.pubsub.cli.doctor.handshake import Handshake, Welcome
from hanzoai.pubsub.cli.doctor.network import (
    NO_PROXY,
    Address,
    check_dns,
    check_tcp,
    check_tls,
    proxy_for,
)
from hanzoai.pubsub.cli.doctor.web import Health, Web, websocket_port
from hanzoai.pubsub.http.status import remedy_of, why_no_proxy
from hanzoai.pubsub.near_names import misspelt_variable
from hanzoai.pubsub.settings.urls import Endpoints, is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hanzoai.pubsub.errors import AuthRefused

_SKEW_NOTICED: Final = 2.0
_SKEW_HARMFUL: Final = 30.0
"""Clock difference in seconds that causes a warning: it affects `since` and the expiry of
tokens.
"""
_COARSE: Final = 1.5
"""Precision of the `Date` header in seconds."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The input of the checks.

    Attributes:
        endpoints: Both addresses of the server.
        token: The token; None if there is none.
        token_problem: The reason why it could not be read.
        topics: Topics whose access is probed.
        patience: Seconds for each check.
        wait_keepalive: Whether to wait for the next comment of the event stream.
        allow_insecure: Whether to send a token unencrypted to another machine.
    """

    endpoints: Endpoints
    token: str | None
    token_problem: AuthRefused | None = None
    topics: tuple[str, ...] = ()
    patience: float = 5.0
    wait_keepalive: bool = False
    allow_insecure: bool = False

    @property
    def addresses(self) -> list[Address]:
        """Both addresses, or the one that they share."""
        http, socket = Address.of(self.endpoints.http), Address.of(self.endpoints.socket)
        if (http.host, http.port) == (socket.host, socket.port):
            return [socket]
        return [http, socket]


async def examine(patient: Patient) -> AsyncIterator[Finding]:
    """Run the checks in order; skip those that depend on a failed one."""
    context = await asyncio.to_thread(ssl.create_default_context)
    reachable = True
    async for finding in _network(patient, context):
        reachable = reachable and finding.status is not Status.FAILED
        yield finding
    try:
        made = Web(patient.endpoints.http, patient.token, context, patient.patience)
    except (ImportError, ValueError) as error:
        why = why_no_proxy(error)
        yield failed("http", "proxy_failed", why, f"{remedy_of(why)} {NO_PROXY}")
        return
    async with made as web:
        handshake = Handshake(patient.endpoints.socket, context, patient.patience)
        try:
            async for finding in _service(patient, context, web, handshake, reachable=reachable):
                yield finding
        finally:
            await handshake.close()


async def _network(patient: Patient, context: ssl.SSLContext) -> AsyncIterator[Finding]:
    direct = [address for address in patient.addresses if proxy_for(address) is None]
    if not direct:
        proxy = proxy_for(patient.addresses[0])
        for name in ("dns", "tcp", "tls"):
            yield skipped(name, f"not checked: connections use the proxy {proxy}")
        return
    dns = await check_dns(direct, patient.patience)
    yield dns
    if dns.status is Status.FAILED:
        yield skipped("tcp", "not tried")
        yield skipped("tls", "not tried")
        return
    tcp = await check_tcp(direct, patient.patience)
    yield tcp
    secure = [address for address in direct if address.secure]
    if tcp.status is Status.FAILED:
        yield skipped("tls", "not tried")
    elif secure:
        yield await check_tls(secure, context, patient.patience)
    else:
        yield _plaintext(direct, patient)


def _plaintext(addresses: list[Address], patient: Patient) -> Finding:
    remote = [address for address in addresses if not is_loopback(address.host)]
    if not remote:
        return skipped("tls", "not encrypted; the connection stays on this machine")
    if patient.allow_insecure:
        return warning(
            "tls",
            "insecure_url",
            f"The token goes unencrypted to {remote[0].host}.",
            "Use wss:// and https:// outside of trusted networks.",
        )
    return failed(
        "tls",
        "insecure_url",
        f"The SDK does not send a token to {remote[0].host} without encryption.",
        "Use wss://, or pass --allow-insecure on a trusted network.",
    )


async def _service(
    patient: Patient,
    context: ssl.SSLContext,
    web: Web,
    handshake: Handshake,
    *,
    reachable: bool,
) -> AsyncIterator[Finding]:
    health, welcome = Health(skipped("http", "not tried")), None
    opened = False
    if reachable:
        health = await web.check_health()
    if health.finding.code == "wrong_port_other" and await _is_websocket(patient, context):
        folder = urlsplit(patient.endpoints.socket).path.rpartition("/")[0]
        health = Health(websocket_port(Address.of(patient.endpoints.http), folder))
    yield health.finding
    http_works = health.finding.status is Status.OK
    # With one address for both, the handshake would fail like the health check.
    if reachable and (http_works or len(patient.addresses) > 1):
        upgrade = await handshake.check_upgrade(
            same_port_as_http=http_works and len(patient.addresses) == 1
        )
        opened = upgrade.status is Status.OK
        yield upgrade
    else:
        yield skipped("websocket", "not tried")
    auth, welcome = await _auth(patient, handshake, opened=opened)
    yield auth
    known = auth.status is Status.OK
    # The stream may take longer than a proxy keeps an idle WebSocket open.
    payload = (
        await handshake.check_payload(welcome.max_payload)
        if known and welcome is not None
        else skipped("payload", "not tried")
    )
    if known and http_works:
        readable = next((topic for topic in patient.topics), None)
        yield await web.check_stream(readable, wait_keepalive=patient.wait_keepalive)
    elif http_works and not opened and patient.token:
        yield await web.check_stream(None, wait_keepalive=patient.wait_keepalive)
    else:
        yield skipped("sse", "not tried")
    yield judge_clock(welcome, health.offset) if reachable else skipped("clock", "not tried")
    yield (
        skipped("token", "there is none")
        if patient.token is None
        else judge_token(patient.token, time.time())
    )
    for topic in patient.topics:
        yield (
            await web.check_access(topic)
            if known and http_works
            else skipped("access", f"{topic}: not tried")
        )
    yield payload


async def _is_websocket(patient: Patient, context: ssl.SSLContext) -> bool:
    """Whether a WebSocket opens at the address of the HTTP API."""
    http, socket = urlsplit(patient.endpoints.http), urlsplit(patient.endpoints.socket)
    scheme = "wss" if http.scheme == "https" else "ws"
    url = urlunsplit((scheme, http.netloc, socket.path, "", ""))
    handshake = Handshake(url, context, patient.patience)
    try:
        finding = await handshake.check_upgrade(same_port_as_http=False)
    finally:
        await handshake.close()
    return finding.status is Status.OK


async def _auth(
    patient: Patient, handshake: Handshake, *, opened: bool
) -> tuple[Finding, Welcome | None]:
    if patient.token_problem is not None:
        problem = patient.token_problem
        return failed("auth", "token_unreadable", problem.message, problem.remedy), None
    if patient.token is None:
        return (
            failed(
                "auth",
                "token_missing",
                "No token was given.",
                "Set HANZO_PUBSUB_TOKEN or pass --token-file; for a development server: "
                "hanzo-pubsub token --user NAME."
                + misspelt_variable("HANZO_PUBSUB_TOKEN", os.environ),
            ),
            None,
        )
    if not opened:
        return skipped("auth", "not tried"), None
    return await handshake.check_auth(patient.token)


def judge_clock(welcome: Welcome | None, http_offset: float | None) -> Finding:
    """Compares the clocks of both machines.

    Args:
        welcome: The content of `auth.ok`, if it arrived.
        http_offset: The difference by the `Date` header, seconds.
    """
    exact = welcome.offset if welcome is not None else None
    offset = exact if exact is not None else http_offset
    if offset is None:
        return skipped("clock", "the server does not report its time")
    tolerance = _SKEW_NOTICED + (0 if exact is not None else _COARSE)
    size, side = abs(offset), "behind" if offset > 0 else "ahead of"
    if size >= _SKEW_HARMFUL:
        return failed(
            "clock",
            "clock_skew",
            f"This machine's clock is {span(size)} {side} the server's.",
            "Set the clocks of both machines (NTP): tokens seem expired or not yet valid, and"
            " replays by time reach back to the wrong moment.",
        )
    if size >= tolerance:
        return warning(
            "clock",
            "clock_skew",
            f"This machine's clock is {span(size)} {side} the server's.",
            "Set the clocks of both machines (NTP).",
        )
    return ok(
        "clock",
        f"differs by {span(size)}" if exact is not None else "differs by less than a second",
    )
