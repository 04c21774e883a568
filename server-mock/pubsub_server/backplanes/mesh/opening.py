"""Opens the mesh of a node: its id, key and TLS, and its first connections."""

from __future__ import annotations

import secrets
import ssl
from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.memory import open_memory
from pubsub_server.backplanes.mesh.backplane import MeshBackplane
from pubsub_server.backplanes.mesh.codec import FORWARD_HEAD
from pubsub_server.backplanes.mesh.mesh import Mesh
from pubsub_server.backplanes.mesh.peering import Terms
from pubsub_server.settings.addresses import parse_address
from pubsub_server.shared.certificate_files import (
    CertificateFileError,
    load_authorities,
    load_chain,
)
from pubsub_server.shared.failure_texts import listen_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.settings.addresses import Address
    from pubsub_server.settings.config import Settings

MEET_WINDOWS: Final = 2
"""Number of acknowledgement windows for which a start waits for the other nodes."""
BASE64_GROWTH: Final = 2
"""Maximum size of another node's message: this factor times `max_payload`, plus the overhead."""
SLOTS: Final = 4096
SLOT: Final = 1_460_000_000_000
"""Distance between the numberings of two nodes. 4,096 times this is 6e15, which stays below 2 ** 53
when the microseconds of the year 2065 are added.
"""


class UnusableError(Exception):
    """A file or address in the settings cannot be used.

    Attributes:
        setting: Name of the setting.
    """

    def __init__(self, setting: str, detail: str) -> None:
        super().__init__(detail)
        self.setting = setting


def build_tls(settings: Settings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """TLS of incoming and of outgoing connections; None for plaintext.

    Both sides show a certificate of `mesh_tls_ca`. Host names are not compared: addresses of nodes
    change, and any holder of such a certificate is a node.

    Raises:
        UnusableError: A file cannot be read, or key and certificate do not belong together.
    """
    certificate, key, authority = (
        settings.mesh_tls_cert,
        settings.mesh_tls_key,
        settings.mesh_tls_ca,
    )
    if certificate is None or key is None or authority is None:
        return None, None
    contexts = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    for context in contexts:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            load_chain(context, ("mesh_tls_cert", certificate), ("mesh_tls_key", key))
            load_authorities(context, "mesh_tls_ca", authority)
        except CertificateFileError as error:
            raise UnusableError(error.setting, error.detail) from None
    return contexts


async def open_mesh(settings: Settings, wall: Callable[[], int]) -> tuple[MeshBackplane, Address]:
    """Listen, dial, and wait for the first answers.

    Args:
        settings: With `mesh_listen`.
        wall: Unix ms.

    Returns:
        The backplane, and the address on which it listens for other nodes.

    Raises:
        UnusableError: The address is in use, or a file cannot be read.
    """
    assert settings.mesh_listen is not None
    listener_tls, dialer_tls = build_tls(settings)
    key = settings.mesh_key
    node = secrets.token_hex(8)
    backplane = MeshBackplane(
        open_memory(settings, wall, origin=int(node, 16) % SLOTS * SLOT), wall
    )
    mesh = backplane.mesh = Mesh(
        Terms(
            node=node,
            start=secrets.token_hex(8),
            address="",
            key=None if key is None else key.get_secret_value().encode(),
            heartbeat=settings.mesh_heartbeat / 1000,
            window=settings.mesh_ack_timeout / 1000,
            max_message=BASE64_GROWTH * settings.max_payload + FORWARD_HEAD,
        ),
        backplane,
        peers=settings.mesh_peer,
        interests=settings.topics_max,
        linger=settings.mesh_linger / 1000,
        queue_bytes=settings.mesh_queue_bytes,
        listener_tls=listener_tls,
        dialer_tls=dialer_tls,
    )
    listen = parse_address(settings.mesh_listen)
    try:
        bound = await mesh.start(listen, settings.mesh_advertise)
    except (OSError, OverflowError) as error:
        detail = f"cannot listen on {settings.mesh_listen}: {listen_failure(error)}"
        raise UnusableError("mesh_listen", detail) from None
    await mesh.wait_for_nodes(MEET_WINDOWS * mesh.terms.window)
    return backplane, bound
