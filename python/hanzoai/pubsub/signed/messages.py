"""The events of a signed topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hanzoai.pubsub.payload_bytes import value_of
from hanzoai.pubsub.values import Gap, Message

if TYPE_CHECKING:
    from hanzoai.pubsub.errors import InvalidPayload


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A verified message that the topic's owner has signed.

    Attributes:
        payload: The signed bytes, at most 4,096.
        owner: Address of the signer, 20 bytes.
        frame: Signature, span and payload, for others to verify.
        message: The HIP-56 message that contained it; None with `url`.
    """

    payload: bytes
    owner: bytes
    frame: bytes
    message: Message | None = None

    @property
    def data(self) -> Any:
        """The payload as JSON: an object or array, a string, or ``{"$base64": "…"}``."""
        return value_of(self.payload)


@dataclass(frozen=True, slots=True)
class Forged:
    """A message that failed verification: the topic's owner has not signed it in this form.

    Attributes:
        error: Reason; `error.field` names the part that is wrong.
        data: As received: a JSON value, or the bytes of a socket.
        message: The HIP-56 message that contained it; None with `url`.
    """

    error: InvalidPayload
    data: Any
    message: Message | None = None


SignedEvent: TypeAlias = SignedMessage | Forged | Gap
"""An event that `SignedTopic.events` yields."""
