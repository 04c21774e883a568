"""Modes of a topic: the format of its messages and how they are verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hanzoai.pubsub import soc

if TYPE_CHECKING:
    from collections.abc import Mapping


class Parameters(NamedTuple):
    """A publisher's parameters of a topic in mode 1.

    Attributes:
        owner: Address of the signer, 20 bytes.
        id: Topic id, 32 bytes.
    """

    owner: bytes
    id: bytes


class Mode(Protocol):
    """One kind of topic.

    Attributes:
        number: Its number on the wire.
    """

    number: int

    def check(self, topic: bytes, parameters: Parameters) -> None:
        """Check that the parameters belong to the topic.

        Raises:
            ValueError: They do not.
        """
        ...

    def verify(self, frame: bytes, parameters: Parameters) -> None:
        """Check a message.

        Raises:
            ValueError: It is malformed or forged.
        """
        ...


class Gsoc:
    """Mode 1: each message is signed by the owner of the topic."""

    number = 1

    def check(self, topic: bytes, parameters: Parameters) -> None:
        """See `Mode`."""
        if soc.topic_address(parameters.id, parameters.owner) != topic:
            raise ValueError("owner and id do not belong to this topic")

    def verify(self, frame: bytes, parameters: Parameters) -> None:
        """See `Mode`."""
        if soc.recover(frame, parameters.id).owner != parameters.owner:
            raise ValueError("the topic's owner has not signed this message")


GSOC: Final = Gsoc()
MODES: Final[Mapping[int, Mode]] = {GSOC.number: GSOC}
"""Modes by number. Add a new mode here."""
