"""Builds the access policy, the authenticators and TLS from the settings, and checks them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from pubsub_server.access import policy
from pubsub_server.access.policy import Policy, RulesError
from pubsub_server.auth import dev_tokens
from pubsub_server.auth.api_keys import ApiKeys, ApiKeysError
from pubsub_server.auth.authenticators import (
    DevelopmentJwts,
    OnAuth,
    RememberedTokens,
    TokenRouter,
)
from pubsub_server.auth.dev_tokens import DevTokens, KeyFileError
from pubsub_server.auth.jwks import FetchFailed, JwksAuthenticator, KeySet
from pubsub_server.settings.addresses import (
    LOOPBACK_HOST,
    parse_address,
    parse_node_address,
    parse_sp_url,
)
from pubsub_server.settings.config import LOOPBACK, Settings
from pubsub_server.shared.certificate_files import (
    CertificateFileError,
    load_authorities,
    load_chain,
)
from pubsub_server.shared.failure_texts import http_failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pubsub_server.interfaces import Authenticator

JWKS_MAX_BYTES: Final = 1_048_576


class StartError(Exception):
    """The server cannot start; the text has one line for each reason, with what to do."""


def check(settings: Settings) -> None:
    """Rejects insecure settings. HIP-56 Security 1 and 3.

    Raises:
        StartError: Development mode outside loopback, plaintext, or no way to authenticate.
    """
    problems = [*_problems(settings)]
    if problems:
        raise StartError("\n".join(problems))


def _problems(settings: Settings) -> Iterator[str]:
    if settings.dev:
        if settings.host not in LOOPBACK:
            yield (
                f"--dev listens on loopback only, not on {settings.host}; use --host 127.0.0.1, or "
                "leave --dev out and configure IAM and TLS"
            )
        for name, parse in (
            ("event_stream", parse_address),
            ("hub", parse_address),
            ("signed_listen", parse_address),
            ("sp_pub", parse_sp_url),
            ("mesh_listen", parse_node_address),
        ):
            text: str | None = getattr(settings, name)
            address = None if text is None else parse(text)
            if address is not None and address.path is None and address.host not in LOOPBACK:
                yield (
                    f"--dev listens on loopback only, not on {address.host}; use {LOOPBACK_HOST}"
                    f" with --{name.replace('_', '-')}"
                )
        return
    if settings.on_mesh and settings.mesh_key is None and settings.mesh_tls_cert is None:
        yield (
            "every program that reaches mesh_listen could read and publish everything: set mesh_key"
            " (HANZO_PUBSUB_MESH_KEY), or mesh_tls_cert, mesh_tls_key and mesh_tls_ca"
        )
    if settings.jwks_url is None and settings.api_keys_file is None:
        yield (
            "no client could authenticate: set IAM_JWKS_URL or --api-keys-file, or use --dev on "
            "this machine"
        )
    if not settings.tls and not settings.behind_tls_proxy:
        yield (
            "plaintext is rejected: set --tls-cert and --tls-key, or --behind-tls-proxy if a "
            "proxy in front of the server terminates TLS"
        )


def build_policy(settings: Settings) -> Policy:
    """The access rules: those of the file or of HIP-56, and in development those of the playground.

    Raises:
        StartError: A rules file is wrong.
    """
    files = [settings.rules or policy.DEFAULT_RULES]
    if settings.dev:
        files.append(policy.DEV_RULES)
    try:
        return Policy(policy.load_rules(files))
    except RulesError as error:
        raise StartError(f"rules: {error}") from None


def build_authenticator(
    settings: Settings, dev_key: bytes | None, on_auth: OnAuth | None = None
) -> tuple[TokenRouter, JwksAuthenticator | None, ApiKeys | None]:
    """The authenticator, and those of its parts that have background tasks.

    Raises:
        StartError: The file of API keys is wrong.
    """
    jwks: JwksAuthenticator | None = None
    jwts: Authenticator | None = None
    if settings.jwks_url is not None:
        jwts = jwks = JwksAuthenticator(
            KeySet(
                _Fetcher(settings.jwks_url, settings.jwks_timeout / 1000),
                max_age=settings.jwks_max_age / 1000,
                min_interval=settings.jwks_min_interval / 1000,
                # A client receives `unavailable` before `auth_deadline` ends its connection.
                patience=min(settings.jwks_timeout, settings.auth_deadline / 2) / 1000,
            ),
            audiences=settings.jwt_audience or (),
            issuer=settings.jwt_issuer,
            leeway=settings.jwt_leeway / 1000,
            claims=settings.jwt_claims,
        )
    if dev_key is not None:
        jwts = DevelopmentJwts(DevTokens(dev_key), jwks)
    if jwts is not None and settings.token_memory:
        jwts = RememberedTokens(jwts, settings.token_memory / 1000)
    keys: ApiKeys | None = None
    if settings.api_keys_file is not None:
        try:
            keys = ApiKeys(settings.api_keys_file)
        except ApiKeysError as error:
            raise StartError(f"api_keys_file: {error}") from None
    return TokenRouter(jwts, keys, on_auth), jwks, keys


def build_dev_key(settings: Settings) -> bytes | None:
    """The development key, in development.

    Raises:
        StartError: It cannot be read or created.
    """
    if not settings.dev:
        return None
    try:
        return dev_tokens.load_key(settings.dev_key_file)
    except KeyFileError as error:
        raise StartError(str(error)) from None


def build_tls(certificate: Path, key: Path, authorities: Path | None = None) -> ssl.SSLContext:
    """The TLS side of listeners.

    Args:
        certificate: `tls_cert`.
        key: `tls_key`.
        authorities: `listener_client_ca`; clients then need a certificate of one of them.

    Raises:
        StartError: A file cannot be read, or the key does not belong to the certificate.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        load_chain(context, ("tls_cert", certificate), ("tls_key", key))
        if authorities is not None:
            load_authorities(context, "listener_client_ca", authorities)
            context.verify_mode = ssl.CERT_REQUIRED
    except CertificateFileError as error:
        raise StartError(str(error)) from None
    return context


class _Fetcher:
    """Fetches a JWKS document over HTTP."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        parts = urlsplit(url)
        # For the log: a user, a password or a key in the query are secrets.
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._encrypted = parts.scheme == "https"
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def __call__(self) -> object:
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout) as session,
                session.get(self._url, max_redirects=3) as response,
            ):
                hops = [each.url.scheme for each in (*response.history, response)]
                if self._encrypted and "http" in hops:
                    raise FetchFailed(f"{self._place}: a redirect leads to an unencrypted address")
                if response.status != 200:
                    raise FetchFailed(f"{self._place}: HTTP {response.status}")
                body = await response.content.read(JWKS_MAX_BYTES + 1)
                while len(body) <= JWKS_MAX_BYTES and (
                    more := await response.content.read(JWKS_MAX_BYTES)
                ):
                    body += more
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FetchFailed(f"{self._place}: {http_failure(error)}") from None
        if len(body) > JWKS_MAX_BYTES:
            raise FetchFailed(f"{self._place}: the answer has more than {JWKS_MAX_BYTES:,} bytes")
        try:
            document: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise FetchFailed(f"{self._place}: the answer is not JSON") from None
        return document
