"""Loads the certificates and keys that settings name, and explains files that cannot be used."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

_CERTIFICATES: Final = tuple(
    b"-----BEGIN %bCERTIFICATE-----" % kind for kind in (b"", b"TRUSTED ", b"X509 ")
)
"""First lines of a certificate that OpenSSL reads."""
_KEY: Final = b"PRIVATE KEY-----"


class CertificateFileError(Exception):
    """A file of a certificate or key cannot be used.

    Args:
        setting: The setting that names the file.
        detail: The file, the problem and the remedy.
    """

    def __init__(self, setting: str, detail: str) -> None:
        super().__init__(f"{setting}: {detail}")
        self.setting = setting
        self.detail = detail


def load_chain(
    context: ssl.SSLContext, certificate: tuple[str, Path], key: tuple[str, Path]
) -> None:
    """Load a certificate chain and its private key.

    Args:
        context: Presents them.
        certificate: The setting and its file.
        key: The setting and its file.

    Raises:
        CertificateFileError: A file cannot be read or used, or they do not belong together.
    """
    _check_certificate(*certificate)
    _check_key(*key)
    (_, chain), (setting, file) = certificate, key
    encrypted = False

    def ask() -> str:
        # Without a callback, OpenSSL asks the terminal, and the start would wait.
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        context.load_cert_chain(chain, file, password=ask)
    except (OSError, ssl.SSLError, ValueError) as error:
        if encrypted:
            detail = (
                f"{file} is encrypted, and the server has no passphrase; decrypt it with `openssl"
                f" pkey -in {file} -out FILE`, and let only the user of the server read it"
            )
        elif getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            detail = (
                f"{file} does not belong to the first certificate in {chain}; put the certificate"
                " of the server before those of its authorities, or give the right key"
            )
        else:
            reason = getattr(error, "strerror", None) or error
            detail = f"{file} cannot be used with {chain}: {reason}"
        raise CertificateFileError(setting, detail) from None


def load_authorities(context: ssl.SSLContext, setting: str, file: Path) -> None:
    """Trust the authorities in a file.

    Raises:
        CertificateFileError: It cannot be read, or contains none.
    """
    _check_certificate(setting, file)
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise CertificateFileError(
            setting, f"{file} cannot be used: {error.strerror or error}"
        ) from None


def trusting(setting: str, file: Path | None) -> ssl.SSLContext:
    """TLS of a client that trusts the authorities in a file; None for those of the system.

    Raises:
        CertificateFileError: It cannot be read, or contains none.
    """
    if file is not None:
        _check_certificate(setting, file)
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise CertificateFileError(
            setting, f"{file} cannot be used: {error.strerror or error}"
        ) from None


def validity_problem(setting: str, file: Path, now: datetime | None = None) -> str | None:
    """Why clients reject the first certificate in a file at this time, if they do.

    Args:
        setting: The setting that names the file.
        file: A chain that `load_chain` accepts.
        now: With a time zone.
    """
    first = x509.load_pem_x509_certificates(file.read_bytes())[0]
    at = datetime.now(UTC) if now is None else now
    if at > first.not_valid_after_utc:
        # The server loads a new `tls_cert` by itself.
        restart = "" if setting == "tls_cert" else ", and restart the server"
        return (
            f"{setting} {file} expired on {first.not_valid_after_utc:%Y-%m-%d}, so others reject"
            f" the connection; renew it{restart}"
        )
    if at < first.not_valid_before_utc:
        return (
            f"{setting} {file} is not valid before {first.not_valid_before_utc:%Y-%m-%d %H:%M} UTC,"
            " so others reject the connection; check the clock of this machine"
        )
    return None


def expiry(file: Path) -> datetime | None:
    """When the first certificate in a file expires; None if that is unknown."""
    try:
        first = x509.load_pem_x509_certificates(file.read_bytes())[0]
    except (OSError, ValueError):
        # OpenSSL reads more forms of PEM.
        return None
    return first.not_valid_after_utc


def _check_certificate(setting: str, file: Path) -> None:
    content = _read(setting, file)
    if any(mark in content for mark in _CERTIFICATES):
        return
    if _KEY in content:
        detail = f"{file} contains a key and no certificate; give the file of the certificate"
    else:
        detail = (
            f"{file} contains no certificate in PEM; convert it with `openssl x509 -inform der -in"
            f" {file} -out FILE` if it is DER"
        )
    raise CertificateFileError(setting, detail)


def _check_key(setting: str, file: Path) -> None:
    content = _read(setting, file)
    if _KEY in content:
        return
    if any(mark in content for mark in _CERTIFICATES):
        detail = f"{file} contains a certificate and no key; give the file of the private key"
    else:
        detail = (
            f"{file} contains no private key in PEM; convert it with `openssl pkey -inform der -in"
            f" {file} -out FILE` if it is DER"
        )
    raise CertificateFileError(setting, detail)


def _read(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CertificateFileError(setting, f"{file} cannot be read: {error.strerror}") from None
