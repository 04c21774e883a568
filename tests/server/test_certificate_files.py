"""Files of certificates and keys that cannot be used, and how the server explains them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from pubsub_server import preflight
from pubsub_server.settings.sources import load
from pubsub_server.shared.certificate_files import validity_problem

if TYPE_CHECKING:
    from pathlib import Path

BOUND = 60


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate in usable and unusable forms."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    root = authority.cert_pem.bytes()
    private = load_pem_private_key(key, None)
    secret = BestAvailableEncryption(b"secret")
    for name, content in {
        "cert.pem": chain,
        "key.pem": key,
        "reversed.pem": root + chain,
        "other.pem": authority.issue_cert("127.0.0.1").private_key_pem.bytes(),
        "encrypted.pem": private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret),
        "old-encrypted.pem": private.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, secret
        ),
        "cert.der": load_pem_x509_certificate(chain).public_bytes(Encoding.DER),
        "broken.pem": chain.replace(b"MII", b"MI!", 1),
    }.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("certificate", "key", "expected"),
    [
        ("key.pem", "cert.pem", "tls_cert: {0} contains a key and no certificate"),
        ("cert.pem", "cert.pem", "tls_key: {1} contains a certificate and no key"),
        ("cert.der", "key.pem", "tls_cert: {0} contains no certificate in PEM; convert it with"),
        ("cert.pem", "cert.der", "tls_key: {1} contains no private key in PEM; convert it with"),
        ("cert.pem", "other.pem", "tls_key: {1} does not belong to the first certificate in {0}"),
        ("reversed.pem", "key.pem", "put the certificate of the server before those of its"),
        ("cert.pem", "encrypted.pem", "tls_key: {1} is encrypted, and the server has no passphr"),
        ("cert.pem", "old-encrypted.pem", "decrypt it with `openssl pkey -in {1} -out FILE`"),
        ("broken.pem", "key.pem", "tls_key: {1} cannot be used with {0}: "),
        (".", "key.pem", "tls_cert: {0} cannot be read: Is a directory"),
    ],
)
def test_a_file_that_tls_cannot_use_is_named_with_the_problem_and_the_remedy(
    files: Path, certificate: str, key: str, expected: str
) -> None:
    paths = files / certificate, files / key
    settings = load({"iam_url": "https://iam", "tls_cert": paths[0], "tls_key": paths[1]})
    (problem,) = preflight.problems(settings)
    assert expected.format(*paths) in problem


@pytest.mark.parametrize("kind", ["X509", "TRUSTED"])
def test_a_certificate_with_another_name_that_openssl_reads_is_used(
    files: Path, tmp_path: Path, kind: str
) -> None:
    old = tmp_path / "cert.pem"
    text = (files / "cert.pem").read_text(encoding="ascii")
    old.write_text(text.replace(" CERTIFICATE", f" {kind} CERTIFICATE"), encoding="ascii")
    certified = {"tls_cert": old, "tls_key": files / "key.pem"}
    assert preflight.problems(load({"iam_url": "https://iam", **certified})) == []


def test_authorities_that_are_not_certificates_are_named(files: Path) -> None:
    names = {"tls_cert": "cert.pem", "tls_key": "key.pem", "listener_client_ca": "other.pem"}
    listening = {name: files / file for name, file in names.items()}
    (problem,) = preflight.problems(load({"iam_url": "https://iam", **listening}))
    assert re.match("listener_client_ca: .* contains a key and no cert", problem)


def test_a_server_on_a_terminal_does_not_ask_for_the_passphrase_of_a_key(files: Path) -> None:
    command = [sys.executable, "-m", "pubsub_server", "serve", "--iam-url", "https://iam.example"]
    command += ["--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "encrypted.pem")]
    # The terminal of its session, from which OpenSSL reads a passphrase, stays silent.
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IN_A_SESSION, os.ttyname(theirs), *command],
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 2
    assert "is encrypted" in json.loads(done.stderr)["message"]


_IN_A_SESSION = """
import os, sys
os.setsid()
os.open(sys.argv[1], os.O_RDWR)  # becomes the terminal of the session
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("share", "expected"), [(-0.1, "is not valid before "), (0.5, None), (1.1, "expired on ")]
)
def test_a_certificate_outside_its_validity_is_reported(
    files: Path, share: float, expected: str | None
) -> None:
    file = files / "cert.pem"
    first = load_pem_x509_certificate(file.read_bytes())
    begin, end = first.not_valid_before_utc, first.not_valid_after_utc
    problem = validity_problem("tls_cert", file, begin + share * (end - begin))
    assert (problem is None) == (expected is None)
    assert problem is None or problem.startswith(f"tls_cert {file} {expected}")


def test_an_expired_certificate_is_a_warning_of_the_start(tmp_path: Path) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    issued = trustme.CA().issue_cert("127.0.0.1", not_after=yesterday)
    paths = {name: tmp_path / f"{name}.pem" for name in ("tls_cert", "tls_key")}
    issued.cert_chain_pems[0].write_to_path(paths["tls_cert"])
    issued.private_key_pem.write_to_path(paths["tls_key"])
    settings = load({"iam_url": "https://iam", **paths})
    assert preflight.problems(settings) == []
    (line,) = preflight.warnings(settings)
    assert line.startswith(f"tls_cert {paths['tls_cert']} expired on {yesterday:%Y-%m-%d}")
