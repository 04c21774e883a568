"""Presence: the members of topics, their state, and lost members during the grace period.

HIP-56 Presence; H-080 … H-086. A client is a member of the topics that it subscribes to by name.
Pure state: the caller passes times, methods return changes, and the hub sends them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Member
from pubsub_server.shared.connection import with_name, without_name
from pubsub_server.shared.member_lists import too_large
from pubsub_server.shared.publications import encode_payload
from pubsub_server.shared.topic_index import Survey, TopicIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pubsub_server.interfaces import Identity

METADATA_BYTES: Final = 16_384
"""Maximum bytes of JSON of a member's metadata."""
CLIENT_METADATA_BYTES: Final = 1_048_576
"""Maximum bytes of JSON of a client's metadata on all of its topics together."""
TEXT_LIMITS: Final = {"status": 64, "name": 256, "avatar_url": 2048}
"""Maximum characters of a member's own fields."""


class Place:
    """One client on one topic."""

    __slots__ = ("avatar_url", "client", "joined_at", "kept", "metadata", "name", "status")

    def __init__(self, client: Client, joined_at: int) -> None:
        self.client = client
        self.joined_at = joined_at
        self.kept = True
        self.status: str | None = None
        # As JSON: its objects take up to twenty times as much memory.
        self.metadata: bytes | None = None
        self.name: str | None = None
        self.avatar_url: str | None = None

    def member(self, *, metadata: bool = True) -> Member:
        """The public state of the member, or only the part without its metadata."""
        client, shown = self.client, self.metadata if metadata else None
        return Member(
            client_id=client.client_id,
            user_id=client.identity.user_id,
            name=self.name or client.identity.name or client.identity.user_id,
            avatar_url=self.avatar_url or client.identity.avatar_url,
            status=self.status,
            metadata=None if shown is None else orjson.loads(shown),
            joined_at=self.joined_at,
            last_seen=client.last_seen,
            kind=client.identity.kind,
        )


class Client:
    """One connected client, or one whose connection was lost recently.

    Attributes:
        client_id: Identifies it.
        identity: Its identity.
        last_seen: Unix ms.
        lost_until: When it leaves, monotonic seconds; None while it is connected.
        topics: The topics of which it is a member.
    """

    __slots__ = ("client_id", "identity", "last_seen", "lost_until", "topics")

    def __init__(self, client_id: str, identity: Identity, last_seen: int) -> None:
        self.client_id = client_id
        self.identity = identity
        self.last_seen = last_seen
        self.lost_until: float | None = None
        self.topics: tuple[str, ...] | dict[str, None] = ()


class Presence:
    """Members of all topics.

    Args:
        max_members: Maximum per topic; later clients are not listed.
    """

    def __init__(self, max_members: int) -> None:
        self._max_members = max_members
        self._topics: dict[str, dict[str, Place]] = {}
        self._clients: dict[str, Client] = {}
        self._index = TopicIndex()

    def __len__(self) -> int:
        """Topics with a member."""
        return len(self._topics)

    def topics(self) -> list[str]:
        """Topics with a member."""
        return list(self._topics)

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Topics with a member that match any of the patterns."""
        return self._index.matching(patterns)

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """Like `matching`, for many topics; see `topic_index.TopicIndex.survey`."""
        return self._index.survey(patterns, allowed)

    def client(self, client_id: str) -> Client | None:
        """The client of this id, if it is a member of anything."""
        return self._clients.get(client_id)

    @property
    def places(self) -> int:
        """Number of members of all topics; a client on several topics counts several times."""
        return sum(map(len, self._topics.values()))

    def count(self, topic: str) -> int:
        """Number of members of a topic."""
        return len(self._topics.get(topic, ()))

    def join(self, client_id: str, identity: Identity, topic: str, now: int) -> Member | None:
        """Become a member.

        Returns:
            The new member; None if it is already a member, or the topic is full.
        """
        client = self._clients.get(client_id)
        places = self._topics.get(topic)
        if places is not None:
            place = places.get(client_id)
            if place is not None:
                place.kept = True
                return None
            if len(places) >= self._max_members:
                return None
        if client is None:
            client = self._clients[client_id] = Client(client_id, identity, now)
        if places is None:
            places = self._topics[topic] = {}
            self._index.add(topic)
        place = places[client_id] = Place(client, now)
        client.topics = with_name(client.topics, topic)
        client.last_seen = now
        return place.member()

    def leave(self, client_id: str, topic: str) -> Member | None:
        """Leave a topic.

        Returns:
            The client that left; None if it was not a member.
        """
        places = self._topics.get(topic)
        place = None if places is None else places.pop(client_id, None)
        if places is None or place is None:
            return None
        if not places:
            del self._topics[topic]
            self._index.discard(topic)
        client = place.client
        client.topics = without_name(client.topics, topic)
        if not client.topics:
            del self._clients[client_id]
        return place.member()

    def lose(self, client_id: str, until: float, last_seen: int | None = None) -> Client | None:
        """The connection was lost: its memberships are kept until this time.

        Args:
            client_id: The client.
            until: Monotonic seconds.
            last_seen: Unix ms; None to keep the known time.

        Returns:
            The client, to be checked again then; None if it was not a member of any topic.
        """
        client = self._clients.get(client_id)
        if client is not None:
            client.lost_until = until
            if last_seen is not None:
                client.last_seen = last_seen
            for topic in client.topics:
                self._topics[topic][client_id].kept = False
        return client

    def lapse(self, client_id: str, limit: int) -> list[tuple[str, Member]]:
        """The grace period is over: leave topics that the client has not joined again.

        Args:
            client_id: The client.
            limit: Maximum topics to leave now.
        """
        client = self._clients.get(client_id)
        if client is None:
            return []
        lost = (t for t in tuple(client.topics) if not self._topics[t][client_id].kept)
        left = list(itertools.islice(lost, limit))
        gone = [(topic, self.leave(client_id, topic)) for topic in left]
        return [(topic, member) for topic, member in gone if member is not None]

    def refresh(self, client_id: str, identity: Identity) -> None:
        """The client authenticated again."""
        client = self._clients.get(client_id)
        if client is not None:
            client.identity = identity

    def update(
        self, client_id: str, topic: str | None, data: Mapping[str, Any], now: int
    ) -> list[tuple[str, Member]]:
        """Change the client's state on one topic, or on all.

        Args:
            client_id: The client.
            topic: The topic; None for all topics of which it is a member.
            data: ``status``, ``name``, ``avatar_url`` change the member, other keys merge into
                ``metadata`` (as do those inside a ``metadata`` object); null deletes.
            now: Unix ms.

        Returns:
            The topics, each with the member.

        Raises:
            ServiceError: `invalid_payload`, `payload_too_large`, or `not_found` if it is not a
                member.
        """
        client = self._clients.get(client_id)
        topics: Iterable[str] = () if client is None else client.topics
        if topic is not None:
            topics = (topic,) if topic in topics else ()
        places = [(name, self._topics[name][client_id]) for name in topics]
        if topic is not None and not places:
            raise ServiceError(
                "not_found",
                f"this client is not a member of {topic}",
                topic=topic,
                remedy="Subscribe to the topic by its name: its subscribers are its members.",
            )
        texts = {name: _text(data, name) for name in TEXT_LIMITS if name in data}
        extra = {key: value for key, value in data.items() if key not in TEXT_LIMITS}
        nested = extra.pop("metadata", None)
        if isinstance(nested, dict):
            extra = {**cast("dict[str, Any]", nested), **extra}
        elif nested is not None:
            raise ServiceError(
                "invalid_payload", "`data.metadata` must be an object", field="data.metadata"
            )
        merged = _merge_each([place.metadata for _, place in places], extra)
        more = _size(merged) - _size(place.metadata for _, place in places)
        if client is not None and more > 0:
            self._check_size(client, more)
        for (_, place), metadata in zip(places, merged, strict=True):
            place.metadata = metadata
            for name, value in texts.items():
                setattr(place, name, value)
            place.client.last_seen = now
        return [(name, place.member()) for name, place in places]

    def _check_size(self, client: Client, more: int) -> None:
        """Reject an update that gives a client this many bytes of metadata more."""
        size = more + _size(
            self._topics[topic][client.client_id].metadata for topic in client.topics
        )
        if size > CLIENT_METADATA_BYTES:
            raise ServiceError(
                "payload_too_large",
                f"with `data`, the metadata of this client on all of its topics has {size:,} bytes"
                f" of JSON together; at most {CLIENT_METADATA_BYTES:,} are allowed",
                field="data",
                remedy="Set less metadata on each topic, or delete keys with null.",
            )

    def restore(self, client_id: str, topic: str, shown: Mapping[str, Any]) -> None:
        """Restore the state of a client that was a member on another node."""
        place = self._topics.get(topic, {}).get(client_id)
        if place is None:
            return
        identity = place.client.identity
        place.status = shown.get("status")
        metadata = shown.get("metadata")
        place.metadata = None if metadata is None else orjson.dumps(metadata)
        place.joined_at = shown["joined_at"]
        name, avatar = shown.get("name"), shown.get("avatar_url")
        place.name = None if name == (identity.name or identity.user_id) else name
        place.avatar_url = None if avatar == identity.avatar_url else avatar

    def keeps(self, client_id: str, topic: str) -> bool:
        """Whether a client is a member, and not only until its grace period is over."""
        place = self._topics.get(topic, {}).get(client_id)
        return place is not None and place.kept

    def member(self, client_id: str, topic: str) -> Member | None:
        """The state of a client on a topic; None if it is not a member."""
        place = self._topics.get(topic, {}).get(client_id)
        return None if place is None else place.member()

    def everybody(self) -> Iterator[tuple[str, Member]]:
        """All members of all topics."""
        for topic, places in self._topics.items():
            for place in places.values():
                yield topic, place.member()

    def members(self, topic: str, seen: Callable[[str], int | None]) -> list[Member]:
        """All members of a topic, in the order in which they joined.

        If their metadata is larger than a list may be, they have none.

        Args:
            topic: The topic.
            seen: Unix ms of the last data from a connected client; None for a lost one.
        """
        members: list[Member] = []
        places = self._topics.get(topic, {})
        whole = not too_large(len(place.metadata or b"") for place in places.values())
        for client_id, place in places.items():
            last_seen = seen(client_id)
            if last_seen is not None:
                place.client.last_seen = max(last_seen, place.client.last_seen)
            members.append(place.member(metadata=whole))
        return members


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data[name]
    limit = TEXT_LIMITS[name]
    if value is not None and (not isinstance(value, str) or len(value) > limit):
        raise ServiceError(
            "invalid_payload",
            f"`data.{name}` must be a string of at most {limit} characters, or null",
            field=f"data.{name}",
        )
    return value or None


def _size(metadata: Iterable[bytes | None]) -> int:
    return sum(len(each) for each in metadata if each is not None)


def _merge_each(olds: Sequence[bytes | None], extra: Mapping[str, Any]) -> Sequence[bytes | None]:
    # A client with a thousand topics changes all of them with one frame. They usually have the same
    # metadata, so merge it once.
    known = {old: _merge(old, extra) for old in set(olds)} if extra else {}
    return [known.get(old, old) for old in olds]


def _merge(old: bytes | None, extra: Mapping[str, Any]) -> bytes | None:
    former: dict[str, Any] = {} if old is None else orjson.loads(old)
    new = {key: value for key, value in {**former, **extra}.items() if value is not None}
    # This also limits its depth: otherwise snapshots of this topic could not be sent or read.
    data = encode_payload(new, "data", METADATA_BYTES)
    return data if new else None
