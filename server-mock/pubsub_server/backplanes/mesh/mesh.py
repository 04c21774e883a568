"""The mesh: dials and accepts, keeps one connection per node, and forwards what the node wants."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from hanzoai.pubsub.payload_bytes import to_bytes
from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.codec import Member
from pubsub_server.backplanes.mesh.interest import Wanted
from pubsub_server.backplanes.mesh.link import Link
from pubsub_server.backplanes.mesh.members import Members
from pubsub_server.backplanes.mesh.peering import (
    GREETING,
    Acknowledged,
    Forwarded,
    Introduced,
    Knows,
    Left,
    MeshError,
    Peering,
    Raw,
    Terms,
    Wants,
    WantsNoMore,
    Welcomed,
)
from pubsub_server.backplanes.mesh.remotes import Remote, Remotes
from pubsub_server.settings.addresses import parse_address
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pubsub_server.backplanes.mesh.codec import Hello, Record
    from pubsub_server.backplanes.mesh.peering import Event
    from pubsub_server.settings.addresses import Address

logger = logging.getLogger(__name__)

EXPECTED: Final = frozenset({"closed", "myself", "second", "left", "replaced", "shutdown"})
"""Ends of connections that break no rule."""
GREETING_MAX: Final = 256
"""Connections in greeting; more are closed."""


class Receiver(Protocol):
    """What gets the messages of other nodes."""

    def forwarded(self, record: Record) -> bool:
        """One of our nodes has forwarded a message; False if it was known."""
        ...

    def raw(self, topic: bytes, data: bytes) -> None:
        """A plain peer has forwarded data on a topic."""
        ...

    def interrupted(self) -> None:
        """Something that this node wanted may not have come."""
        ...


@dataclass(slots=True)
class Counts:
    """What happened, since the start.

    Attributes:
        forwarded: Messages sent, once for each peer.
        forwarded_bytes: Of these, with their frames.
        received: Messages that came.
        duplicates: Of these, those that were known.
        unwanted: Of these, those without a subscriber here.
        refused: Connections and requests of peers that break a rule.
        stalled: Connections cut because the peer did not read.
        lost: Connections in use that ended without a goodbye.
    """

    forwarded: int = 0
    forwarded_bytes: int = 0
    received: int = 0
    duplicates: int = 0
    unwanted: int = 0
    refused: int = 0
    stalled: int = 0
    lost: int = 0


class Mesh:
    """All connections with other nodes.

    Args:
        terms: Of this node. Its address may lack a host or have port 0; `start` completes it.
        receiver: Gets what others forward.
        peers: Addresses that are dialed without limit.
        interests: Topics and patterns that a peer may want.
        linger: See `interest.Wanted`.
        queue_bytes: See `Link`.
        listener_tls: For connections that come; None for plaintext.
        dialer_tls: For those that this node opens.

    Attributes:
        wanted: What this node wants.
        counts: What happened.
        met: Whether there has ever been another node.
        published: Whether a client of this node has ever published.
    """

    def __init__(
        self,
        terms: Terms,
        receiver: Receiver,
        *,
        peers: Sequence[str],
        interests: int,
        linger: float,
        queue_bytes: int,
        listener_tls: ssl.SSLContext | None = None,
        dialer_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.terms = terms
        self.wanted = Wanted(linger)
        self.counts = Counts()
        self.met = False
        self.published = False
        self._receiver = receiver
        self._queue_bytes = queue_bytes
        self._listener_tls, self._dialer_tls = listener_tls, dialer_tls
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._loop, logger, "mesh")
        self._members = Members(peers, secrets.SystemRandom().random)
        self._remotes = Remotes(interests)
        self._links: set[Link] = set()
        self._of: dict[Link, Remote] = {}
        self._server: asyncio.Server | None = None
        self._tick_at: asyncio.TimerHandle | None = None
        self._every = max(0.01, min(terms.heartbeat, terms.window) / 5)
        self._settling: dict[asyncio.Future[None], dict[Link, tuple[int, int]]] = {}
        self._announcing = False
        self._telling = False
        self._plain_lost = False
        self._ending = False
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ life

    async def start(self, listen: Address, advertise: str | None) -> Address:
        """Listen and dial.

        Args:
            listen: Where to listen; port 0 picks a free one.
            advertise: Where others reach this node, if that is elsewhere.

        Raises:
            OSError: The address is in use, or not of this machine.
        """
        self._server = await self._loop.create_server(
            lambda: self._link(None), listen.host, listen.port, ssl=self._listener_tls, backlog=512
        )
        bound = listen._replace(port=int(self._server.sockets[0].getsockname()[1]))
        anywhere = listen.host in {"0.0.0.0", "::"}
        address = advertise or (f":{bound.port}" if anywhere else str(bound))
        self.terms = Terms(
            self.terms.node,
            self.terms.start,
            address,
            self.terms.key,
            self.terms.heartbeat,
            self.terms.window,
            self.terms.max_message,
        )
        self._tick()
        return bound

    async def meet(self, seconds: float) -> None:
        """Wait until every known address was tried, or until the time is over.

        So a node that starts hears the others before its first client comes.
        """
        try:
            async with asyncio.timeout(seconds):
                while self._members.untried(self._remotes.linked) or any(
                    not link.peering.ready for link in self._links
                ):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            logger.warning("mesh: no node answered within %g s; still trying", seconds)

    async def close(self, seconds: float = 1.0) -> None:
        """Say goodbye and end all connections, within so many seconds."""
        self._ending = True
        if self._tick_at is not None:
            self._tick_at.cancel()
        await stop_accepting(self._server)
        for future in self._settling:
            if not future.done():
                future.set_result(None)
        await self._tasks.stop()
        for link in list(self._links):
            link.finish()
        try:
            async with asyncio.timeout(seconds):
                while self._links:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            for link in list(self._links):
                link.cut("shutdown", "this node ends")

    # ------------------------------------------------------------ interest

    def join(self, name: str) -> bool:
        """A client of this node wants this; False if it was wanted already."""
        if not self.wanted.join(name):
            return False
        for link in self._ready():
            link.peering.announcements.want((name,))
        self._announce_soon()
        return True

    def leave(self, name: str) -> None:
        """No client of this node wants it any more."""
        self.wanted.leave(name, self._loop.time())
        self._announce_soon()

    def settle(self) -> Awaitable[None] | None:
        """Tell the peers at once what is wanted.

        Returns:
            What waits until all have acknowledged, or one window has passed; None where they have.
        """
        self._announce()
        missing = {
            link: announcements.asked
            for link in self._ready()
            if not (announcements := link.peering.announcements).reached(announcements.asked)
        }
        if not missing:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._settling[future] = missing
        timer = self._loop.call_later(self.terms.window, _done, future)

        def settled(_: asyncio.Future[None]) -> None:
            timer.cancel()
            self._settling.pop(future, None)

        future.add_done_callback(settled)
        return future

    # ------------------------------------------------------------ messages

    def wanting(self, topic: str) -> Sequence[Remote]:
        """The nodes that want a topic, including nodes that are not connected now."""
        return self._remotes.table.peers(topic)

    def forward(
        self, wanting: Sequence[Remote], topic: str, record: Callable[[], Record], data: bytes
    ) -> None:
        """A client of this node has published: send it to the nodes that want it.

        Args:
            wanting: See `wanting`.
            topic: Where.
            record: Makes what our nodes get.
            data: The JSON of the data; plain peers get the bytes that it stands for.
        """
        frame: bytes | None = None
        plain: bytes | None = None
        for remote in wanting:
            link = remote.link
            if link is None:
                remote.missed = True
                continue
            self.counts.forwarded += 1
            if remote.plain:
                plain = to_bytes(data) if plain is None else plain
                link.send_data(topic.encode(), plain)
            else:
                frame = codec.record(record()) if frame is None else frame
                link.send(frame)

    # ------------------------------------------------------------ measured

    @property
    def peers(self) -> int:
        """Nodes with a connection."""
        return sum(1 for _ in self._remotes)

    @property
    def links(self) -> Collection[Link]:
        """All connections, those in greeting too."""
        return tuple(self._links)

    @property
    def nodes(self) -> Sequence[Remote]:
        """Those nodes."""
        return tuple(self._remotes)

    @property
    def members(self) -> int:
        """Addresses that are known."""
        return len(self._members)

    @property
    def interests(self) -> int:
        """Topics and patterns that other nodes want, counted once for each."""
        return len(self._remotes.table)

    @property
    def forwarded_bytes(self) -> int:
        """Bytes of forwards, with their frames."""
        return self.counts.forwarded_bytes + sum(link.forwarded_bytes for link in self._links)

    # ------------------------------------------------------------ see link.Owner

    def opened(self, link: Link) -> None:
        """See `link.Owner`."""
        self._links.add(link)
        if self._ending:
            link.cut("shutdown", "this node ends")
        elif sum(not each.peering.ready for each in self._links) > GREETING_MAX:
            link.cut("greeting_limit", "too many connections have not completed the greeting")

    def happened(self, link: Link, event: Event) -> None:
        """See `link.Owner`."""
        match event:
            case Introduced(hello):
                self._introduced(link, hello)
            case Welcomed():
                self._welcomed(link, plain=event.plain, missed=event.missed)
            case Wants(opcode, names):
                ok = self._remotes.wants(self._of[link], names)
                self.counts.refused += not ok
                link.peering.acknowledge(opcode, ok=ok)
            case WantsNoMore(names):
                self._remotes.table.discard(self._of[link], names)
            case Forwarded(record):
                self._forwarded(link, record)
            case Raw(topics, data):
                self._raw(link, topics, data)
            case Knows(members):
                self._knows(members)
            case Acknowledged():
                self._acknowledged(link)
            case Left():
                self._left(link)

    def lost(self, link: Link, reason: str, said: str) -> None:
        """See `link.Owner`."""
        self._links.discard(link)
        counts = self.counts
        counts.forwarded_bytes += link.forwarded_bytes
        now = self._loop.time()
        remote = self._of.pop(link, None)
        used = remote is not None and remote.link is link
        if link.address is not None and remote is None:
            self._members.dialed(link.address, None, now)
            if reason == "myself":
                self._members.mine(link.address)
        if reason == "stalled":
            counts.stalled += 1
        elif reason not in EXPECTED:
            counts.refused += 1
        if reason not in EXPECTED:
            logger.warning("mesh: closed the connection to %s: %s", _name(link, remote), said)
        if remote is not None and used:
            self._remotes.disconnect(remote, now, for_good=remote.plain or reason == "left")
            self._plain_lost |= remote.plain
            if reason != "left" and not self._ending:
                counts.lost += 1
                logger.warning("mesh: lost node %s: %s", remote.node, said)
                self._receiver.interrupted()
            self._tell_soon()
        self._acknowledged(link)
        self._changed.set()

    # ------------------------------------------------------------ inside: greeting

    def _link(self, address: str | None) -> Link:
        peering = Peering(
            self.terms, secrets.token_bytes(16), dialed=address is not None, now=self._loop.time()
        )
        return Link(self, peering, self._loop, self._queue_bytes, address)

    def _introduced(self, link: Link, hello: Hello) -> None:
        if link.address is not None:
            self._members.dialed(link.address, hello.node, self._loop.time())
        if hello.node < self.terms.node:
            # The other decides which connection stays.
            return
        held = self._remotes.get(hello.node)
        old = None if held is None else held.link
        if held is not None and old is not None:
            if held.start != hello.start:
                raise MeshError("duplicate_id", f"two nodes have the id {hello.node}")
            if old.peering.silence(self._loop.time()) < self.terms.heartbeat + self.terms.window:
                raise MeshError("second", "there is a connection with this node")
            old.cut("replaced", "the node has opened another connection")
        self._use(link, hello)
        self._begin(link)

    def _welcomed(self, link: Link, *, plain: bool, missed: bool) -> None:
        hello = link.peering.hello
        if plain or hello is None:
            self._meet_plain(link)
            return
        if not link.peering.ready:
            held = self._remotes.get(hello.node)
            old = None if held is None else held.link
            if held is not None and old is not None:
                if held.start != hello.start:
                    raise MeshError("duplicate_id", f"two nodes have the id {hello.node}")
                old.cut("replaced", "the node uses another connection")
            self._use(link, hello)
            self._begin(link)
        if missed:
            self._receiver.interrupted()

    def _use(self, link: Link, hello: Hello) -> None:
        """Let this connection be the one with the node."""
        remote = self._remotes.get(hello.node)
        missed = self.published if remote is None else remote.missed
        if remote is None or remote.start != hello.start:
            remote = Remote(hello.node, hello.start, "", plain=False)
        host, _, port = hello.address.rpartition(":")
        peer = f"[{link.peer_host}]" if ":" in link.peer_host else link.peer_host
        remote.address = hello.address if host else f"{peer}:{port}"
        link.peering.accept(missed=missed)
        self._connect(link, remote)
        self._members.learn(remote.node, remote.address, self._loop.time())
        logger.info("mesh: connected to node %s at %s", remote.node, remote.address)

    def _meet_plain(self, link: Link) -> None:
        name = f"plain {link.address or secrets.token_hex(8)}"
        if link.address is not None:
            self._members.dialed(link.address, name, self._loop.time())
        self._connect(link, Remote(name, "", "", plain=True))
        self._begin(link)
        logger.info("mesh: connected to a peer that speaks opcodes 1 to 6 only")
        if self._plain_lost:
            self._receiver.interrupted()

    def _connect(self, link: Link, remote: Remote) -> None:
        self._of[link] = remote
        self._remotes.connect(remote, link, self._loop.time() + 2 * self.terms.window)
        self.met = True

    def _begin(self, link: Link) -> None:
        link.peering.announcements.want(self.wanted)
        link.announce()
        self._tell_soon()
        self._changed.set()

    def _left(self, link: Link) -> None:
        remote = self._of[link]
        if not remote.plain:
            self._members.gone(remote.node)
        link.cut("left", "the node has ended")

    # ------------------------------------------------------------ inside: what peers say

    def _forwarded(self, link: Link, record: Record) -> None:
        counts = self.counts
        counts.received += 1
        if not self.wanted.covers(record.topic):
            counts.unwanted += 1
            link.peering.announcements.repeat_unwanted(record.topic)
        elif not self._receiver.forwarded(record):
            counts.duplicates += 1

    def _raw(self, link: Link, topics: Sequence[bytes], data: bytes) -> None:
        counts = self.counts
        counts.received += 1
        wanted = False
        for topic in dict.fromkeys(topics):
            name = topic.decode("latin-1")
            if self.wanted.covers(name):
                wanted = True
                self._receiver.raw(topic, data)
            else:
                link.peering.announcements.repeat_unwanted(name)
        counts.unwanted += not wanted

    def _knows(self, members: Sequence[Member]) -> None:
        now = self._loop.time()
        for node, address in ((each.node, each.address) for each in members):
            if node == self.terms.node:
                continue
            try:
                parse_address(address)
            except ValueError:
                self.counts.refused += 1
                continue
            # The node with the lower id dials first, so that both seldom do.
            patience = 0.0 if self.terms.node < node else self.terms.window
            self._members.learn(node, address, now, patience=patience)
        self._dial_due()

    def _acknowledged(self, link: Link) -> None:
        ended = link.ended
        for future, missing in list(self._settling.items()):
            asked = missing.get(link)
            if asked is not None and (ended or link.peering.announcements.reached(asked)):
                del missing[link]
                if not missing:
                    _done(future)

    # ------------------------------------------------------------ inside: time

    def _tick(self) -> None:
        self._tick_at = self._loop.call_later(self._every, self._tick)
        for link in list(self._links):
            link.tick()
        self._announce()
        self._remotes.expire(self._loop.time())
        self._dial_due()

    def _dial_due(self) -> None:
        for address in self._members.due(self._remotes.linked, self._loop.time()):
            self._tasks.spawn(self._dial(address))

    async def _dial(self, address: str) -> None:
        try:
            where = parse_address(address)
            async with asyncio.timeout(GREETING * self.terms.window):
                found = await self._loop.getaddrinfo(
                    where.host, where.port, type=socket.SOCK_STREAM
                )
                # A name may stand for several nodes.
                host, port = secrets.choice(found)[4][:2]
                assert isinstance(host, str)
                assert isinstance(port, int)
                await self._loop.create_connection(
                    lambda: self._link(address),
                    host,
                    port,
                    ssl=self._dialer_tls,
                    server_hostname="" if self._dialer_tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            logger.debug("mesh: cannot reach %s: %s", address, error or type(error).__name__)
            self._members.dialed(address, None, self._loop.time())
            self._changed.set()

    def _announce_soon(self) -> None:
        if not self._announcing:
            self._announcing = True
            self._loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._announcing = False
        ended = self.wanted.ended(self._loop.time())
        for link in self._ready():
            if ended:
                link.peering.announcements.unwant(ended)
            link.announce()

    def _tell_soon(self) -> None:
        if not self._telling and not self._ending:
            self._telling = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        """Tell every node which nodes there are."""
        self._telling = False
        nodes = [Member(each.node, each.address) for each in self._remotes if not each.plain]
        for remote in self._remotes:
            link = remote.link
            if not remote.plain and link is not None:
                others = [each for each in nodes if each.node != remote.node]
                link.peering.tell(others[: codec.MAX_MEMBERS])
                link.speak()

    def _ready(self) -> list[Link]:
        return [remote.link for remote in self._remotes if remote.link is not None]


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _name(link: Link, remote: Remote | None) -> str:
    if remote is not None:
        return f"node {remote.node}"
    return link.address or link.peer_host or "a peer"
