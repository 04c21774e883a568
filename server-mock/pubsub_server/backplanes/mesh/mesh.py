"""The mesh: keeps one connection per node, and forwards to each node what it subscribes to."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from hanzoai.pubsub.payload_bytes import to_bytes
from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.codec import Member
from pubsub_server.backplanes.mesh.counts import Counts
from pubsub_server.backplanes.mesh.dialer import Dialer
from pubsub_server.backplanes.mesh.interest import Wanted
from pubsub_server.backplanes.mesh.lanes import RESENDS
from pubsub_server.backplanes.mesh.link import Link
from pubsub_server.backplanes.mesh.members import Members
from pubsub_server.backplanes.mesh.peering import (
    GREETING,
    Acknowledged,
    Forwarded,
    Introduced,
    Left,
    MembersListed,
    MeshError,
    Peering,
    Raw,
    Subscribed,
    Terms,
    Unsubscribed,
    Welcomed,
)
from pubsub_server.backplanes.mesh.remotes import Remote, Remotes
from pubsub_server.backplanes.mesh.settling import Settling
from pubsub_server.settings.addresses import parse_node_address
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.shared.own_addresses import own_hosts
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from pubsub_server.backplanes.mesh.codec import Hello, Record
    from pubsub_server.backplanes.mesh.peering import Event
    from pubsub_server.settings.addresses import Address

logger = logging.getLogger(__name__)

EXPECTED: Final = frozenset({"closed", "myself", "second", "left", "replaced", "shutdown"})
"""Reasons for closing a connection that are not protocol violations."""
GREETING_MAX: Final = 256
"""Maximum incoming connections that have not completed the greeting; more are closed."""
LOG_STRANGERS_EVERY: Final = 60.0
"""Seconds between two log lines about connections of peers that have not proved who they are: any
program can open them. The counters contain all."""


class Receiver(Protocol):
    """Receives the messages of other nodes."""

    def forwarded(self, record: Record) -> bool:
        """Accept a message of another node; False if it is a duplicate."""
        ...

    def raw(self, topic: bytes, data: bytes) -> None:
        """Accept data that a plain peer has forwarded on a topic."""
        ...

    def interrupted(self, names: Iterable[str]) -> None:
        """Messages of these topics and patterns may be lost."""
        ...


class Mesh:
    """All connections with other nodes.

    Args:
        terms: Of this node. `start` sets the address.
        receiver: Receives the messages of other nodes.
        peers: Addresses that are dialed forever.
        interests: Maximum topics and patterns that a peer may subscribe to.
        linger: See `interest.Wanted`.
        queue_bytes: See `Link`.
        listener_tls: For connections that other nodes open; None for plaintext.
        dialer_tls: For connections that this node opens; None for plaintext.

    Attributes:
        wanted: Topics and patterns of the clients of this node.
        counts: Counters since the start.
        had_peers: Whether there has ever been another node.
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
        self.had_peers = False
        self.published = False
        self._receiver = receiver
        self._queue_bytes = queue_bytes
        self._listener_tls = listener_tls
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._tasks = Tasks(self._loop, logger, "mesh")
        self._members = Members(peers, secrets.SystemRandom().random)
        self._remotes = Remotes(interests)
        self._dialer = Dialer(
            self._members,
            self._tasks,
            linked=self._remotes.linked,
            connection=self._link,
            failed=self._changed.set,
            tls=dialer_tls,
            seconds=GREETING * terms.window,
        )
        self._links: set[Link] = set()
        self._remote_of: dict[Link, Remote] = {}
        self._server: asyncio.Server | None = None
        self._tick_at: asyncio.TimerHandle | None = None
        self._every = max(0.01, min(terms.heartbeat, terms.window) / 5)
        self._settling = Settling(self._loop)
        # Addresses of connections that ended before the greeting, and are in the log.
        self._reported: dict[str, str] = {}
        # When to log the next incoming connection, and the next one to a learned address.
        self._log_next_at = {False: 0.0, True: 0.0}
        self._announcing = False
        self._sending_members = False
        self._plain_lost = False
        self._ending = False

    # ------------------------------------------------------------ life

    async def start(self, listen: Address, advertise: str | None) -> Address:
        """Listen and dial.

        Args:
            listen: Address to listen on; port 0 selects a free port.
            advertise: Address at which other nodes reach this one, if it differs.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        seconds = None if self._listener_tls is None else GREETING * self.terms.window
        self._server = await self._loop.create_server(
            lambda: self._link(None),
            await own_hosts(listen.host, listen.port),
            listen.port,
            ssl=self._listener_tls,
            ssl_handshake_timeout=seconds,
            backlog=512,
        )
        bound = listen._replace(port=int(self._server.sockets[0].getsockname()[1]))
        anywhere = listen.host in {"0.0.0.0", "::"}
        address = advertise or (f":{bound.port}" if anywhere else str(bound))
        self.terms = replace(self.terms, address=address)
        self._tick()
        return bound

    async def wait_for_nodes(self, seconds: float) -> None:
        """Wait until every known address has been tried, for at most this many seconds.

        So a node is connected before it accepts its first client.
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
        """Announce the end on all connections and close them, within this many seconds."""
        self._ending = True
        if self._tick_at is not None:
            self._tick_at.cancel()
        await stop_accepting(self._server)
        self._settling.end()
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
        """Subscribe to a topic or pattern; False if this node has already subscribed."""
        if not self.wanted.join(name, self._loop.time()):
            return False
        for link in self._ready():
            link.peering.announcements.want((name,))
        self._announce_soon()
        return True

    def leave(self, name: str) -> None:
        """The last client of this node has unsubscribed."""
        self.wanted.leave(name, self._loop.time())
        self._announce_soon()

    def announce(self) -> Awaitable[None] | None:
        """Send pending subscriptions to all peers at once.

        Returns:
            An awaitable that ends when all have acknowledged, or after one window; None if all
            have.
        """
        self._announce()
        return self._settling.wait(self._ready(), self.terms.window)

    # ------------------------------------------------------------ messages

    def wanting(self, topic: str) -> Sequence[Remote]:
        """The nodes that subscribe to a topic, including nodes that are not connected now."""
        return self._remotes.table.peers(topic)

    def forward(
        self, wanting: Sequence[Remote], topic: str, record: Callable[[], Record], data: bytes
    ) -> None:
        """Send a message of a client of this node to other nodes.

        Args:
            wanting: The nodes, from `wanting`.
            topic: The message's topic.
            record: Makes the envelope for our nodes.
            data: JSON; plain peers receive the bytes that it encodes.
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
        """All connections, including those in the greeting."""
        return tuple(self._links)

    @property
    def nodes(self) -> Sequence[Remote]:
        """The nodes with a connection."""
        return tuple(self._remotes)

    @property
    def members(self) -> int:
        """Number of known addresses."""
        return len(self._members)

    @property
    def interests(self) -> int:
        """Topics and patterns that other nodes subscribe to, summed over the nodes."""
        return len(self._remotes.table)

    @property
    def forwarded_bytes(self) -> int:
        """Bytes of forwarded messages, with their frames."""
        return self.counts.forwarded_bytes + sum(link.forwarded_bytes for link in self._links)

    # ------------------------------------------------------------ see link.Owner

    def opened(self, link: Link) -> None:
        """See `link.Owner`."""
        self._links.add(link)
        if self._ending:
            link.cut("shutdown", "this node ends")
        elif link.address is None:
            self._bound_strangers()

    def on_event(self, link: Link, event: Event) -> None:
        """See `link.Owner`."""
        match event:
            case Introduced(hello):
                self._introduced(link, hello)
            case Welcomed():
                self._welcomed(link, plain=event.plain, missed=event.missed)
            case Subscribed(opcode, names):
                ok = self._remotes.wants(self._remote_of[link], names, self._stale_until())
                self.counts.refused += not ok
                link.peering.acknowledge(opcode, ok=ok)
            case Unsubscribed(names):
                self._remotes.table.discard(self._remote_of[link], names)
            case Forwarded(record):
                self._forwarded(link, record)
            case Raw(topics, data):
                self._raw(link, topics, data)
            case MembersListed(members):
                self._learn_members(members)
            case Acknowledged(ok):
                if not ok and not link.refused:
                    link.refused = True
                    logger.warning(
                        "mesh: %s accepts no more topics of this node, and sends no messages of the"
                        " rejected ones; raise topics_max on that node",
                        _name(link, self._remote_of[link]),
                    )
                self._settling.progress(link)
            case Left():
                self._left(link)

    def lost(self, link: Link, reason: str, detail: str) -> None:
        """See `link.Owner`."""
        self._links.discard(link)
        counts = self.counts
        counts.forwarded_bytes += link.forwarded_bytes
        now = self._loop.time()
        remote = self._remote_of.pop(link, None)
        used = remote is not None and remote.link is link
        if link.address is not None and remote is None:
            self._members.dialed(link.address, None, now)
            if reason == "myself":
                self._members.mine(link.address)
            elif reason == "closed" and link.peering.hello is None:
                self._report_closed(link.address, now)
        if reason == "stalled":
            counts.stalled += 1
        elif reason not in EXPECTED and reason != "dead":
            counts.refused += 1
        if reason not in EXPECTED and (
            remote is not None or self._may_log(link.address, reason, now)
        ):
            logger.warning("mesh: closed the connection to %s: %s", _name(link, remote), detail)
        if remote is not None and used:
            remote.missed |= link.unconfirmed
            unheard = link.peering.silence(now) + (1 + RESENDS) * self.terms.window
            remote.known_until = now - unheard
            self._remotes.disconnect(remote, now, for_good=remote.plain or reason == "left")
            self._plain_lost |= remote.plain
            if reason != "left" and not self._ending:
                counts.lost += 1
                logger.warning("mesh: lost node %s: %s", remote.node, detail)
                self._receiver.interrupted(self.wanted)
            elif reason == "left":
                logger.info("mesh: node %s has stopped", remote.node)
            self._send_members_soon()
        self._settling.progress(link)
        self._changed.set()

    # ------------------------------------------------------------ inside: greeting

    def _bound_strangers(self) -> None:
        """Close the connection that has been silent longest, if there are too many.

        Not the newest: strangers that never send a hello would keep every node out.
        """
        strangers = [
            each for each in self._links if each.address is None and not each.peering.ready
        ]
        if len(strangers) > GREETING_MAX:
            now = self._loop.time()
            silent = max(strangers, key=lambda each: each.peering.silence(now))
            silent.cut("greeting_limit", "too many connections have not completed the greeting")

    def _report_closed(self, address: str, now: float) -> None:
        """Log the first connection in a row that ended without a hello."""
        if self._ending or not self._members.configured(address):
            return
        if self._may_log(address, "closed", now):
            logger.warning(
                "mesh: %s closes connections before the greeting; check that this node and that"
                " one both use mesh_tls_cert, or neither; trying again",
                address,
            )

    def _may_log(self, address: str | None, reason: str, now: float) -> bool:
        """Whether to log that a connection ended before the greeting.

        Args:
            address: The dialed address. For one from the settings, a reason is logged once, until
                another one replaces it or the connection succeeds. Strangers cannot use up the
                log lines for addresses that other nodes have named.
            reason: Why it ended.
            now: Monotonic seconds.
        """
        is_dialed = address is not None
        if address is not None and self._members.configured(address):
            is_new = self._reported.get(address) != reason
            self._reported[address] = reason
        elif is_new := now >= self._log_next_at[is_dialed]:
            self._log_next_at[is_dialed] = now + LOG_STRANGERS_EVERY
        return is_new

    def _link(self, address: str | None) -> Link:
        peering = Peering(
            self.terms, secrets.token_bytes(16), dialed=address is not None, now=self._loop.time()
        )
        return Link(self, peering, self._loop, self._queue_bytes, address)

    def _introduced(self, link: Link, hello: Hello) -> None:
        if link.address is not None:
            self._members.dialed(link.address, hello.node, self._loop.time())
        if hello.node < self.terms.node:
            # The other node decides which connection to keep.
            return
        held = self._remotes.get(hello.node)
        old = None if held is None else held.link
        if held is not None and old is not None:
            if held.start != hello.start:
                raise MeshError("duplicate_id", f"two nodes have the id {hello.node}")
            if old.peering.silence(self._loop.time()) < self.terms.heartbeat + self.terms.window:
                raise MeshError("second", "a connection with this node exists already")
            old.cut("replaced", "the node has opened another connection")
        self._adopt(link, hello)
        self._announce_all(link)

    def _welcomed(self, link: Link, *, plain: bool, missed: bool) -> None:
        hello = link.peering.hello
        if plain or hello is None:
            self._adopt_plain(link)
            return
        if not link.peering.ready:
            held = self._remotes.get(hello.node)
            old = None if held is None else held.link
            if held is not None and old is not None:
                if held.start != hello.start:
                    raise MeshError("duplicate_id", f"two nodes have the id {hello.node}")
                old.cut("replaced", "the node uses another connection")
            self._adopt(link, hello)
            self._announce_all(link)
        if missed:
            self._receiver.interrupted(self.wanted)

    def _adopt(self, link: Link, hello: Hello) -> None:
        """Use this connection for the node."""
        remote = self._remotes.get(hello.node)
        missed = self.published if remote is None else remote.missed
        # It did not know of these, so it cannot tell whether this node has missed messages.
        unknown = [] if remote is None else self.wanted.since(remote.known_until)
        if remote is None or remote.start != hello.start:
            remote = Remote(hello.node, hello.start, "", plain=False)
        host, _, port = hello.address.rpartition(":")
        peer = f"[{link.peer_host}]" if ":" in link.peer_host else link.peer_host
        remote.address = hello.address if host else f"{peer}:{port}"
        link.peering.accept(missed=missed)
        self._connect(link, remote)
        if unknown:
            self._receiver.interrupted(unknown)
        self._members.learn(remote.node, remote.address, self._loop.time())
        logger.info("mesh: connected to node %s at %s", remote.node, remote.address)

    def _adopt_plain(self, link: Link) -> None:
        name = f"plain {link.address or secrets.token_hex(8)}"
        if link.address is not None:
            self._members.dialed(link.address, name, self._loop.time())
        self._connect(link, Remote(name, "", "", plain=True))
        self._announce_all(link)
        logger.info("mesh: connected to a peer that supports opcodes 1 to 6 only")
        if self._plain_lost:
            self._receiver.interrupted(self.wanted)

    def _connect(self, link: Link, remote: Remote) -> None:
        self._remote_of[link] = remote
        if link.address is not None:
            self._reported.pop(link.address, None)
        self._remotes.connect(remote, link, self._stale_until())
        self.had_peers = True

    def _stale_until(self) -> float:
        return self._loop.time() + 2 * self.terms.window

    def _announce_all(self, link: Link) -> None:
        link.peering.announcements.want(self.wanted)
        link.announce()
        self._send_members_soon()
        self._changed.set()

    def _left(self, link: Link) -> None:
        remote = self._remote_of[link]
        if not remote.plain:
            self._members.gone(remote.node)
        link.cut("left", "the node has stopped")

    # ------------------------------------------------------------ inside: what peers send

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

    def _learn_members(self, members: Sequence[Member]) -> None:
        now = self._loop.time()
        for node, address in ((each.node, each.address) for each in members):
            if node == self.terms.node:
                continue
            try:
                parse_node_address(address)
            except ValueError:
                self.counts.refused += 1
                continue
            # The node with the lower id dials first, so that both rarely dial at the same time.
            patience = 0.0 if self.terms.node < node else self.terms.window
            self._members.learn(node, address, now, patience=patience)
        self._dialer.dial_due()

    # ------------------------------------------------------------ inside: time

    def _tick(self) -> None:
        self._tick_at = self._loop.call_later(self._every, self._tick)
        for link in list(self._links):
            link.tick()
        self._announce()
        self._remotes.expire(self._loop.time())
        self._dialer.dial_due()

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

    def _send_members_soon(self) -> None:
        if not self._sending_members and not self._ending:
            self._sending_members = True
            self._loop.call_soon(self._send_members)

    def _send_members(self) -> None:
        """Send the list of nodes to every node."""
        self._sending_members = False
        nodes = [Member(each.node, each.address) for each in self._remotes if not each.plain]
        for remote in self._remotes:
            link = remote.link
            if not remote.plain and link is not None:
                others = [each for each in nodes if each.node != remote.node]
                link.peering.send_members(others[: codec.MAX_MEMBERS])
                link.write_pending()

    def _ready(self) -> list[Link]:
        return [remote.link for remote in self._remotes if remote.link is not None]


def _name(link: Link, remote: Remote | None) -> str:
    if remote is not None:
        return f"node {remote.node}"
    return link.address or link.peer_host or "a peer"
