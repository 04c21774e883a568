"""Client ids that are bound to an identity, without a record of each."""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pubsub_server.interfaces import Identity

SEAL_CHARACTERS: Final = 20


class ClientIds:
    """Issues client ids and recognizes them.

    Args:
        secret: Seals the ids. All nodes that share presence need the same one.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def issue(self, identity: Identity) -> str:
        """An id for a new client of this identity."""
        name = secrets.token_hex(10)
        return f"cl_{name}{self._seal(name, identity)}"

    def vouches(self, client_id: str, identity: Identity) -> bool:
        """Whether the id was issued to this identity, by any node with the same secret."""
        name, seal = client_id[3:-SEAL_CHARACTERS], client_id[-SEAL_CHARACTERS:]
        wanted = self._seal(name, identity)
        return client_id.startswith("cl_") and hmac.compare_digest(seal.encode(), wanted.encode())

    def _seal(self, name: str, identity: Identity) -> str:
        text = f"{name} {identity.kind} {identity.user_id}".encode()
        return hmac.new(self._secret, text, sha256).hexdigest()[:SEAL_CHARACTERS]
