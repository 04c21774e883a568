"""Signed topics: readers verify the author of each message without trusting the servers.

    async with SignedTopic(client=ps, id="alerts", key=key) as topic:
        await topic.publish({"level": 3})

    async with SignedTopic(client=ps, id="alerts", owner=owner) as topic:
        async for message in topic:
            print(message.data)

docs/signed.md is the guide. Needs the extra ``signed``.
"""

from hanzoai.pubsub.signed.messages import Forged, SignedEvent, SignedMessage
from hanzoai.pubsub.signed.topic import SignedTopic, Signer

__all__ = ["Forged", "SignedEvent", "SignedMessage", "SignedTopic", "Signer"]
