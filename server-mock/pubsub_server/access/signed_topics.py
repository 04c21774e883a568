"""Signed topics: the topic's owner must sign each message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from hanzoai.pubsub.errors import InvalidPayload
from hanzoai.pubsub.soc import from_data, verify
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pubsub_server.shared.requests import Draft

PREFIX: Final = "signed."
_ADDRESS: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class SignedTopics:
    """See `interfaces.Inspector`: no forged message is published below `signed.`."""

    def inspect(self, draft: Draft) -> None:
        """See `interfaces.Inspector`."""
        topic = draft.topic
        if not topic.startswith(PREFIX):
            return
        address = topic.removeprefix(PREFIX)
        if not _ADDRESS.fullmatch(address):
            raise ServiceError(
                "invalid_topic",
                "a signed topic is `signed.` and the 64 lower-case hex digits of its address",
                topic=topic,
                field="topic",
                remedy="Compute the address with `topic_address(id, owner)`.",
            )
        try:
            signed = from_data(orjson.loads(draft.data))
            owner = verify(signed.frame, signed.id, bytes.fromhex(address)).owner
        except InvalidPayload as error:
            where = "data" if error.field in {None, "data"} else f"data.{error.field}"
            raise ServiceError(
                "invalid_payload", error.message, topic=topic, field=where, remedy=error.remedy
            ) from None
        if owner != signed.owner:
            raise ServiceError(
                "invalid_payload",
                "`owner` is not the signer",
                topic=topic,
                field="data.owner",
                remedy="Name the address that the signature recovers to.",
            )
