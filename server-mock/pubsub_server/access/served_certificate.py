"""The certificate of the listeners, loaded again when its files change."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from typing import TYPE_CHECKING, Final

from pubsub_server.shared.certificate_files import CertificateFileError, expiry, load_chain
from pubsub_server.shared.file_stamps import stamp
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from pathlib import Path

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks whether the files have changed."""

_LOG: Final = logging.getLogger("pubsub_server")


class ServedCertificate:
    """A certificate with its key, and the contexts of the listeners that present it.

    Args:
        certificate: `tls_cert`, which the contexts have loaded.
        key: `tls_key`.
        contexts: They use a later certificate for new connections.
    """

    def __init__(self, certificate: Path, key: Path, *contexts: ssl.SSLContext) -> None:
        self._certificate = certificate
        self._key = key
        self._contexts = contexts
        self._used = self._found = self._stamps()
        self._tasks: Tasks | None = None
        self._expiry = expiry(certificate)

    def expiry_time(self) -> float:
        """Unix seconds at which the certificate in use expires; NaN if that is unknown."""
        return math.nan if self._expiry is None else self._expiry.timestamp()

    def start(self) -> None:
        """Check the files regularly."""
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "certificate")
        self._tasks.keep(self._watch)

    async def close(self) -> None:
        """Stop checking the files."""
        if self._tasks is not None:
            await self._tasks.stop()

    def check(self) -> None:
        """Load the files again if they have changed, but not since the last check.

        In between, another program may have replaced only one of them.
        """
        former, self._found = self._found, self._stamps()
        if self._found != former or self._found == self._used:
            return
        self._used = self._found
        pair = ("tls_cert", self._certificate), ("tls_key", self._key)
        try:
            # A pair that cannot be used would leave the listeners without a certificate.
            load_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *pair)
            for context in self._contexts:
                load_chain(context, *pair)
        except CertificateFileError as error:
            _LOG.error("keeping the previous certificate: %s", error)
            return
        self._expiry = expiry(self._certificate)
        until = "" if self._expiry is None else f", which expires on {self._expiry:%Y-%m-%d}"
        _LOG.info("loaded the certificate again: %s%s", self._certificate, until)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.check()

    def _stamps(self) -> object:
        return stamp(self._certificate), stamp(self._key)
