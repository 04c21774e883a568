"""Names of keys and channels. One hash tag a shard, so that a cluster keeps a shard together."""

from __future__ import annotations

from typing import Final
from zlib import crc32

VERSION: Final = 2
"""Of what the keys are called and hold; nodes with different ones cannot share them."""


class Layout:
    """Which shard a topic belongs to, and what its keys and channels are called.

    Args:
        prefix: What all names begin with; services that share a Redis take different ones.
        shards: How many; the same on every node, forever.

    Attributes:
        prefix: As given.
        bases: What the names of each shard begin with.
    """

    def __init__(self, prefix: str, shards: int) -> None:
        self.prefix = prefix
        self.bases = tuple(f"{prefix}:{{{shard}}}" for shard in range(shards))

    def shard(self, topic: str) -> int:
        """The shard of a topic: its CRC-32 by the number of shards."""
        return crc32(topic.encode()) % len(self.bases)

    def channel(self, topic: str) -> str:
        """What brings the messages of a topic alone."""
        return f"{self.bases[self.shard(topic)]}:t:{topic}"

    def index(self, shard: int) -> str:
        """The key that holds the topics of a shard by the time of their newest message."""
        return f"{self.bases[shard]}:z"

    def members(self, topic: str) -> str:
        """The key that holds who is on a topic."""
        return f"{self.bases[self.shard(topic)]}:p:{topic}"

    def attended(self, shard: int) -> str:
        """The key that holds the topics of a shard with a member by the time of the last change."""
        return f"{self.bases[shard]}:q"

    def emptied(self, shard: int) -> str:
        """The key of the topics whose last member has left."""
        return f"{self.bases[shard]}:e"

    def starts(self, shard: int) -> str:
        """The key that holds where logs of a shard will start that have no message yet."""
        return f"{self.bases[shard]}:f"

    @property
    def owners(self) -> list[str]:
        """The keys that hold the nodes with members or counters in a shard, one for each shard."""
        return [f"{base}:o" for base in self.bases]

    @property
    def nodes(self) -> str:
        """The key that holds the nodes by the time of their last beat."""
        return f"{self.bases[0]}:nodes"

    @property
    def left(self) -> str:
        """The key that holds the nodes that were stopped in order by the time of that."""
        return f"{self.bases[0]}:left"

    @property
    def laid(self) -> str:
        """The key that holds `mark` of the first node that wrote under the prefix."""
        return f"{self.bases[0]}:layout"

    @property
    def mark(self) -> str:
        """Version and number of shards, which all nodes have to have in common."""
        return f"{VERSION} {len(self.bases)}"

    @property
    def timeout(self) -> str:
        """The key that holds `node_timeout` of the node that was started last, ms."""
        return f"{self.bases[0]}:timeout"

    @property
    def secret(self) -> str:
        """The key that holds what client ids are sealed with."""
        return f"{self.bases[0]}:secret"

    def bucket(self, name: str) -> str:
        """The key that holds what one user may publish over REST."""
        return f"{self.bases[self.shard(name)]}:b:{name}"
