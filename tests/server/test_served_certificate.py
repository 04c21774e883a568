"""The certificate of the listeners is loaded again when its files change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import trustme
from trustme import KeyType

from pubsub_server.testing import running_server
from tests.interop.peer import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import pytest

    from pubsub_server.access.served_certificate import ServedCertificate
    from pubsub_server.testing import RunningServer

BOUND = 60


class Issuer:
    """Writes certificates of one authority into a folder."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.trusting = ssl.create_default_context()
        self._authority.configure_trust(self.trusting)

    def issue(self, days: int, key: KeyType = KeyType.ECDSA) -> tuple[bytes, bytes]:
        """A certificate that expires in so many days, and its key."""
        until = datetime.now(UTC) + timedelta(days=days)
        issued = self._authority.issue_cert("127.0.0.1", not_after=until, key_type=key)
        return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()

    def write(self, days: int, key: KeyType = KeyType.ECDSA) -> None:
        """Replace both files."""
        certificate, private = self.issue(days, key)
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(private)


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[Issuer, RunningServer, ServedCertificate]]:
    """A server whose files are checked only when the test does so."""
    issuer = Issuer(folder)
    issuer.write(days=10)
    files: dict[str, Any] = {"tls_cert": issuer.certificate, "tls_key": issuer.key}
    async with asyncio.timeout(BOUND), running_server(event_stream="0", **files) as server:
        inner: Any = server.server
        await inner._certificate.close()
        yield issuer, server, inner._certificate


async def days_left(issuer: Issuer, server: RunningServer) -> set[int]:
    """Days until the certificates expire that a client sees on each port."""
    found: set[int] = set()
    for url in (server.http, server.ws, server.server.others["event_stream"]):
        port = int(url.rpartition(":")[2].partition("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=issuer.trusting)
        peer = writer.get_extra_info("ssl_object").getpeercert()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        found.add(_days(ssl.cert_time_to_seconds(peer["notAfter"])))
    return found


def measured(server: RunningServer) -> float:
    (found,) = (
        each
        for each in server.server.instruments()
        if each.name == "tls_certificate_expiry_timestamp_seconds"
    )
    reading: Any = found
    return float(reading.read())


def _days(at: float) -> int:
    return round((at - datetime.now(UTC).timestamp()) / 86_400)


async def test_new_connections_get_a_renewed_certificate_on_every_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pubsub_server")
    async with served(tmp_path) as (issuer, server, certificate):
        assert await days_left(issuer, server) == {10}
        assert _days(measured(server)) == 10
        issuer.write(days=90)
        # The files must stay the same for two checks.
        certificate.check()
        certificate.check()
        assert await days_left(issuer, server) == {90}
        assert _days(measured(server)) == 90
        certificate.check()
    (line,) = (each for each in caplog.messages if "loaded the certificate again" in each)
    assert line.endswith(f"expires on {datetime.now(UTC) + timedelta(days=90):%Y-%m-%d}")


async def test_a_server_checks_its_files_regularly(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.write(days=10)
    files: dict[str, Any] = {"tls_cert": issuer.certificate, "tls_key": issuer.key}
    async with (
        asyncio.timeout(BOUND),
        running_server(event_stream="0", **files) as server,
    ):

        async def is_renewed() -> bool:
            return await days_left(issuer, server) == {90}

        issuer.write(days=90)
        await eventually(is_renewed)


async def test_a_renewed_certificate_with_another_type_of_key_replaces_the_previous_one(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (issuer, server, certificate):
        for days, key in ((90, KeyType.RSA), (60, KeyType.ECDSA)):
            issuer.write(days, key)
            certificate.check()
            certificate.check()
            assert await days_left(issuer, server) == {days}


async def test_a_file_whose_permissions_change_is_read_again(tmp_path: Path) -> None:
    async with served(tmp_path) as (issuer, server, certificate):
        renewed, key = issuer.issue(days=90)
        issuer.certificate.write_bytes(renewed)
        issuer.key.write_bytes(key)
        times = issuer.key.stat()
        certificate.check()
        issuer.key.chmod(0o600)
        assert issuer.key.stat().st_mtime_ns == times.st_mtime_ns
        certificate.check()
        assert await days_left(issuer, server) == {10}
        certificate.check()
        assert await days_left(issuer, server) == {90}


async def test_a_renewed_certificate_without_its_key_is_an_error_and_the_previous_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as (issuer, server, certificate):
        renewed, key = issuer.issue(days=90)
        issuer.certificate.write_bytes(renewed)
        for _ in range(3):
            certificate.check()
        assert await days_left(issuer, server) == {10}
        assert _days(measured(server)) == 10
        (line,) = (each for each in caplog.messages if "keeping the previous certificate" in each)
        assert f"tls_key: {issuer.key} does not belong to the first certificate" in line
        issuer.key.write_bytes(key)
        certificate.check()
        certificate.check()
        assert await days_left(issuer, server) == {90}


async def test_an_expiry_that_cannot_be_read_is_not_a_number(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.write(days=10)
    text = issuer.certificate.read_text("ascii")
    issuer.certificate.write_text(text.replace(" CERTIFICATE", " TRUSTED CERTIFICATE"), "ascii")
    files: dict[str, Any] = {"tls_cert": issuer.certificate, "tls_key": issuer.key}
    async with asyncio.timeout(BOUND), running_server(**files) as server:
        assert math.isnan(measured(server))
