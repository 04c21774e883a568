"""Below HTTP: names, connections, certificates."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

from hanzoai.pubsub.cli.doctor.claims import span
from hanzoai.pubsub.cli.doctor.findings import Finding, failed, ok, warning
from hanzoai.pubsub.network.dialing import open_stream
from hanzoai.pubsub.settings.proxies import system_proxy

NO_PROXY: Final = "Or list the host in NO_PROXY."
"""The end of a remedy for a proxy."""
_CERTIFICATE_SOON: Final = 14 * 86400
# OpenSSL's X509_V_ERR_*: problems of a certificate chain.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_SELF_SIGNED: Final = frozenset({18, 19})
_UNKNOWN_ISSUER: Final = frozenset({2, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one listener."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """The address in a URL."""
        parts = urlsplit(url)
        secure = parts.scheme in ("wss", "https")
        return cls(parts.scheme, parts.hostname or "", parts.port or (443 if secure else 80))

    @property
    def secure(self) -> bool:
        """Whether the address uses TLS."""
        return self.scheme in ("wss", "https")

    @property
    def text(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def proxy_for(address: Address) -> str | None:
    """Host and port of the proxy that the environment sets for an address; no credentials."""
    found = system_proxy(f"{address.scheme}://{address.text}")
    if not found:
        return None
    parts = urlsplit(found)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname


async def check_dns(addresses: list[Address], patience: float) -> Finding:
    """Checks that the host names resolve."""
    began = time.perf_counter()
    found: list[str] = []
    for host in dict.fromkeys(address.host for address in addresses):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            found.append(f"{host} is an address")
            continue
        try:
            async with asyncio.timeout(patience):
                answers = await asyncio.get_running_loop().getaddrinfo(
                    host, None, type=socket.SOCK_STREAM
                )
        except TimeoutError:
            return failed(
                "dns",
                "dns_timeout",
                f"The name {host} was not resolved within {span(patience)}.",
                "Check the resolver (/etc/resolv.conf) and that its port 53 can be reached.",
            )
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a host name"
            return failed(
                "dns",
                "dns_unresolved",
                f"The name {host} cannot be resolved: {why}.",
                "Check the spelling of the URL, then the resolver, VPN or /etc/hosts.",
            )
        unique = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        found.append(f"{host} → {', '.join(unique[:4])}")
    return ok("dns", "; ".join(found), (time.perf_counter() - began) * 1000)


async def check_tcp(addresses: list[Address], patience: float) -> Finding:
    """Checks that a program listens at the addresses."""
    began = time.perf_counter()
    reached: list[str] = []
    for address in addresses:
        try:
            async with asyncio.timeout(patience):
                _, writer = await open_stream(address.host, address.port)
        except ConnectionRefusedError:
            return failed(
                "tcp",
                "port_closed",
                f"Nothing listens on {address.text}: the connection was refused.",
                f"Check that the server runs and that {address.port} is its port"
                f" ({_usual(address)}).",
            )
        except TimeoutError:
            return failed(
                "tcp",
                "tcp_timeout",
                f"{address.text} did not answer within {span(patience)}.",
                "A firewall or security group drops the packets, or the host is down.",
            )
        except OSError as error:
            return failed(
                "tcp",
                "tcp_failed",
                f"{address.text} cannot be reached: {error.strerror or type(error).__name__}.",
                "Check the network, the VPN and the route to the host.",
            )
        reached.append(address.text)
        await _close(writer)
    accept = "accepts" if len(reached) == 1 else "accept"
    return ok("tcp", f"{' and '.join(reached)} {accept} connections", _since(began))


async def check_tls(addresses: list[Address], context: ssl.SSLContext, patience: float) -> Finding:
    """Checks the certificate: its chain, its dates, its name."""
    began = time.perf_counter()
    ends: list[float] = []
    for address in addresses:
        try:
            async with asyncio.timeout(patience):
                _, writer = await open_stream(address.host, address.port, context)
        except ssl.SSLCertVerificationError as error:
            return _bad_certificate(address, error)
        except TimeoutError:
            return failed(
                "tls",
                "tls_timeout",
                f"{address.text} accepted the connection, then did not answer within"
                f" {span(patience)}.",
                "Another program uses this port, or the server hangs.",
            )
        except (ssl.SSLError, OSError) as error:
            return await _no_tls(address, error, patience)
        certificate = cast("dict[str, object]", writer.get_extra_info("peercert") or {})
        if isinstance(end := certificate.get("notAfter"), str):
            ends.append(ssl.cert_time_to_seconds(end))
        await _close(writer)
    left = min(ends, default=float("inf")) - time.time()
    if left < _CERTIFICATE_SOON:
        return warning(
            "tls",
            "certificate_expires_soon",
            f"The certificate is valid, but expires in {span(left)}.",
            "Renew it.",
        )
    return ok("tls", f"the certificate is valid and expires in {span(left)}", _since(began))


async def speaks_tls(address: Address, patience: float) -> bool:
    """Whether a TLS server answers, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(patience):
            _, writer = await open_stream(address.host, address.port, context)
    except (OSError, TimeoutError):
        return False
    await _close(writer)
    return True


def _bad_certificate(address: Address, error: ssl.SSLCertVerificationError) -> Finding:
    code = error.verify_code
    if code == _EXPIRED:
        return failed(
            "tls",
            "certificate_expired",
            f"The certificate of {address.text} has expired.",
            "Renew it on the server; if it was renewed, reload the server or the proxy in "
            "front of it.",
        )
    if code == _NOT_YET_VALID:
        return failed(
            "tls",
            "certificate_not_yet_valid",
            f"The certificate of {address.text} is not valid yet.",
            "Check this machine's clock, then the dates of the certificate.",
        )
    if code in _WRONG_NAME:
        return failed(
            "tls",
            "certificate_wrong_name",
            f"The certificate of {address.text} is for another name, not for {address.host}.",
            "Use the name in the certificate, or get a certificate for this name.",
        )
    if code in _SELF_SIGNED or code in _UNKNOWN_ISSUER:
        return failed(
            "tls",
            "certificate_untrusted",
            f"The certificate of {address.text} is signed by an authority that this machine does"
            " not trust.",
            _trust_remedy(),
        )
    return failed(
        "tls",
        "certificate_refused",
        f"The certificate of {address.text} was rejected: {error.verify_message}.",
        "Check the certificate chain of the server.",
    )


def _trust_remedy() -> str:
    """How to trust a certificate. OpenSSL ignores an unusable SSL_CERT_FILE without a word."""
    install = (
        "Install its CA in the system's store, or point SSL_CERT_FILE at the CA's PEM file; "
        "a server behind a public CA must send the intermediate certificates, too."
    )
    file = os.environ.get("SSL_CERT_FILE")
    if file is None:
        return install
    if not file:
        # Systems that also have a folder of certificates still read that.
        return (
            "Unset SSL_CERT_FILE: it is empty, which hides the system's file of certificates. "
            f"If this does not help: {install[0].lower()}{install[1:]}"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        problem = "has no certificates in PEM"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    else:
        return install
    return f"Correct SSL_CERT_FILE: it names {file}, which {problem}."


async def _no_tls(address: Address, error: Exception, patience: float) -> Finding:
    if await _speaks_plaintext(address, patience):
        return failed(
            "tls",
            "tls_not_spoken",
            f"{address.text} does not use TLS, but the URL requires it.",
            "Use ws:// or http:// (a development server), or the port that uses TLS.",
        )
    why = getattr(error, "reason", None) or type(error).__name__
    return failed(
        "tls",
        "tls_failed",
        f"The TLS handshake with {address.text} failed: {why}.",
        "Check that this port uses TLS, compare the TLS versions and ciphers of both sides, and "
        "check whether the server requires a client certificate.",
    )


async def _speaks_plaintext(address: Address, patience: float) -> bool:
    """Whether a plain HTTP request is answered in plain HTTP."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await open_stream(address.host, address.port)
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: doctor\r\nConnection: close\r\n\r\n")
                head = await reader.read(5)
            finally:
                await _close(writer)
    except (OSError, TimeoutError):
        return False
    return head.startswith(b"HTTP/")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(1):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def _usual(address: Address) -> str:
    if address.scheme in ("ws", "wss"):
        return "usually 8057 for WebSockets"
    return "usually 8056 for HTTP; --rest-url sets it"


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
