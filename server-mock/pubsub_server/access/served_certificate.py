"""The certificate of the listeners, loaded again when its files change."""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Final

from pubsub_server.access.setup import StartError, build_tls
from pubsub_server.shared.certificate_files import expiry
from pubsub_server.shared.file_stamps import stamp
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks whether the files have changed."""

_LOG: Final = logging.getLogger("pubsub_server")


class ServedCertificate:
    """A certificate with its key, and the contexts of the listeners that present it.

    Args:
        certificate: `tls_cert`.
        key: `tls_key`.
        authorities: For each context, who signs the certificates of clients; None for clients
            without certificates.

    Attributes:
        contexts: For listeners; new connections use the certificate that was loaded last.

    Raises:
        StartError: See `setup.build_tls`.
    """

    def __init__(self, certificate: Path, key: Path, *authorities: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        # Before the files are read: later changes are then found.
        self._used = self._found = self._stamps()
        self.contexts = self._loaded = self._load()
        for index, context in enumerate(self.contexts):
            context.sni_callback = partial(self._choose, index)
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
        try:
            # A context keeps a certificate whose key has another type, and a pair that does not
            # match would leave it without any. So the new pair gets new contexts.
            self._loaded = self._load()
        except StartError as error:
            _LOG.error("keeping the previous certificate: %s", error)
            return
        self._expiry = expiry(self._certificate)
        until = "" if self._expiry is None else f", which expires on {self._expiry:%Y-%m-%d}"
        _LOG.info("loaded the certificate again: %s%s", self._certificate, until)

    def _load(self) -> list[ssl.SSLContext]:
        return [build_tls(self._certificate, self._key, each) for each in self._authorities]

    def _choose(self, index: int, connection: ssl.SSLObject, *_: object) -> None:
        # OpenSSL calls it for clients that send no name, too.
        connection.context = self._loaded[index]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.check()

    def _stamps(self) -> object:
        return stamp(self._certificate), stamp(self._key)
