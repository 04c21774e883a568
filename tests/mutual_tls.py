"""A server that requires client certificates, and rejects clients without one as OpenSSL does.

The servers of asyncio send no alert.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from collections.abc import Generator


@contextlib.contextmanager
def rejecting(authority: trustme.CA, host: str) -> Generator[int]:
    """Serve on a port of 127.0.0.1; yields the port.

    Args:
        authority: Signs the certificate of the server.
        host: The name in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authority.issue_cert(host).configure_cert(context)
    trustme.CA().configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        with contextlib.suppress(OSError):
            _reject(accepted, context)


def _reject(accepted: socket.socket, context: ssl.SSLContext) -> None:
    wrapped = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    with contextlib.suppress(ssl.SSLError):
        wrapped.do_handshake()
    # Read to the end: with unread data, closing discards the alert.
    with socket.socket(fileno=wrapped.detach()) as bare:
        bare.settimeout(60)
        bare.shutdown(socket.SHUT_WR)
        while bare.recv(65_536):
            pass
