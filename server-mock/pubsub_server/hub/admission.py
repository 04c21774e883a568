"""The identity of a connection: authentication, reauthentication, and token expiry.

HIP-56 Security 1, 7, 10; H-140, H-141, H-148, H-152 … H-154.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import AuthOk, Caller
from pubsub_server.shared.connection import NEVER
from pubsub_server.shared.encoder import Liveness
from pubsub_server.shared.wheel import TICK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.connection import Connection

logger = logging.getLogger(__name__)

VERSION: Final = 1
TOGETHER: Final = 0.2
"""Seconds between two rounds of pings, and so the maximum delay of a ping."""
FEATURES: Final = ("ref", "ack", "seq", "idempotency", "batch", "resume", "meta")


class Admission:
    """Gives a connection its identity and removes it.

    Args:
        core: The parts of the hub.
        end: Ends a connection with an error and its close code.
        drop_pattern: Ends a subscription that is no longer allowed.
    """

    def __init__(
        self,
        core: Core,
        end: Callable[[Connection, ServiceError], None],
        drop_pattern: Callable[[Connection, str], None],
    ) -> None:
        self._core = core
        self._end = end
        self._drop_pattern = drop_pattern
        settings = core.settings
        # Seconds. Cached, because it is read for every connection at every ping.
        self._ping = settings.server_ping_interval / 1000
        self._comment = settings.sse_keepalive / 1000
        self._timeout = settings.presence_timeout / 1000
        self._program = settings.program_timeout / 1000 or NEVER
        self._notice = settings.expiring_notice / 1000
        self._together = min(TOGETHER, self._ping / 50)
        # Silent connections, and the time of the second check, which ends them.
        self._doubted: dict[Connection, float] = {}

    def expect(self, connection: Connection) -> None:
        """A connection has opened and must authenticate in time."""
        connection.deadline = self._core.clock() + self._core.settings.auth_deadline / 1000
        self._core.schedule(connection, connection.deadline)

    async def identify(self, token: str, caller: Caller | None) -> Identity:
        """See `service.Service`."""
        audit = self._core.audit
        try:
            identity = await self._core.authenticator.authenticate(token)
        except ServiceError as error:
            if audit is not None:
                audit.auth(None, caller, refused=error.code)
            raise
        if audit is not None:
            audit.auth(identity, caller)
        return identity

    async def admit(
        self, connection: Connection, token: str, client_id: str | None = None
    ) -> AuthOk:
        """Authenticate a connection, or reauthenticate it.

        Raises:
            ServiceError: `token_invalid`, `token_expired`, `connection_limit`, `unavailable`.
        """
        audit = self._core.audit
        # A closed transport no longer has the address.
        caller = None if audit is None else connection.sink.caller
        identity: Identity | None = None
        try:
            identity = await self._core.authenticator.authenticate(token)
            await self._assign_identity(connection, identity, client_id)
        except ServiceError as error:
            if audit is not None:
                known = connection.client_id or client_id
                audit.auth(identity, caller, client_id=known, refused=error.code)
            raise
        if audit is not None:
            audit.auth(identity, caller, client_id=connection.client_id)
        return self.answer(identity, connection.client_id)

    async def enter(self, connection: Connection, identity: Identity) -> None:
        """Give a connection an identity without a token; see `service.Service`."""
        audit = self._core.audit
        caller = None if audit is None else connection.sink.caller
        try:
            await self._assign_identity(connection, identity, None)
        except ServiceError as error:
            if audit is not None:
                audit.auth(identity, caller, refused=error.code)
            raise
        if audit is not None:
            audit.auth(identity, caller, client_id=connection.client_id)

    async def _assign_identity(
        self, connection: Connection, identity: Identity, client_id: str | None
    ) -> None:
        """Give the connection this identity, initially or again.

        Raises:
            ServiceError: `token_invalid`, `connection_limit`, `unavailable`.
        """
        core = self._core
        _still_open(connection)
        held = connection.identity
        if held is not None and (held.user_id, held.kind) != (identity.user_id, identity.kind):
            raise ServiceError(
                "token_invalid",
                "this token names another user than the connection; open a new connection",
                field="token",
            )
        granted = core.limiter.acquire(identity, held)
        if granted is not None:
            await granted
            try:
                _still_open(connection)
            except ServiceError:
                core.limiter.release(identity, held)
                raise
        if held is None:
            self._enter(connection, identity, client_id)
        else:
            self._renew(connection, identity, held)

    def _enter(self, connection: Connection, identity: Identity, client_id: str | None) -> None:
        core = self._core
        connection.client_id = self.client_id(identity, client_id)
        replaced = core.connections.get(connection.client_id)
        if replaced is not None:
            # The client is here, so its old connection is dead, even if the server has not noticed.
            self._end(replaced, ServiceError("replaced", "another connection replaced this one"))
        connection.identity = identity
        connection.since = core.wall()
        if core.roster is not None:
            connection.steady_since = core.roster.steady()
        core.connections[connection.client_id] = connection
        core.stats.authenticated += 1
        core.presence.refresh(connection.client_id, identity)
        self._set_end(connection, identity)

    def client_id(self, identity: Identity, resumed: str | None) -> str:
        """The id of a new connection: the one to resume if this identity may, else a new one."""
        ids = self._core.ids
        if resumed is not None and ids.vouches(resumed, identity):
            return resumed
        return ids.issue(identity)

    def _renew(self, connection: Connection, identity: Identity, held: Identity) -> None:
        core = self._core
        core.limiter.release(held, identity)
        connection.identity = identity
        core.presence.refresh(connection.client_id, identity)
        self._set_end(connection, identity)
        core.delivery.close_run()
        for pattern in tuple(connection.patterns):
            if not core.policy.may_subscribe_pattern(identity, pattern):
                self._drop_pattern(connection, pattern)
                core.refuse(
                    connection,
                    ServiceError(
                        "forbidden",
                        "the access rules no longer allow this subscription; it has ended",
                        topic=pattern,
                    ),
                )
        core.router.changed(connection)

    def _set_end(self, connection: Connection, identity: Identity) -> None:
        core = self._core
        now = core.clock()
        if identity.expires_at is None:
            connection.deadline = connection.notice_at = NEVER
        else:
            left = max(0, identity.expires_at - core.today()) / 1000
            connection.deadline = now + left
            # A short-lived token and its replacement get the notice immediately.
            connection.notice_at = connection.deadline - min(self._notice, left / 2)
        core.schedule(connection, self._next(connection, now))

    def answer(self, identity: Identity, client_id: str) -> AuthOk:
        """The content of ``auth.ok``."""
        return AuthOk(
            client_id=client_id,
            user_id=identity.user_id,
            version=VERSION,
            features=FEATURES,
            expires_at=identity.expires_at,
            server_time=self._core.today(),
            limits=self.limits(identity),
            node=self._core.backplane.node,
        )

    def limits(self, identity: Identity) -> dict[str, int]:
        """What the server allows this identity: ``auth.ok.limits``."""
        settings, rates = self._core.settings, self._core.rates
        bulk = {"bulk_rate": rates.rate(identity, batch=True)} if identity.bulk else {}
        return {
            "publish_rate": rates.rate(identity),
            **bulk,
            "max_payload": settings.max_payload,
            "history_max": settings.history_max_messages,
            "max_subscriptions": settings.max_subscriptions,
            "max_batch": settings.max_batch,
        }

    def withdraw(self, gone: Sequence[Identity], other: Sequence[Identity]) -> None:
        """End the connections with these identities: their keys were removed or changed.

        A client whose key was changed reconnects immediately, with the new permissions.
        """
        whose = {id(identity): True for identity in gone}
        whose |= {id(identity): False for identity in other}
        ended: Counter[tuple[str, str]] = Counter()
        for connection in list(self._core.connections.values()):
            identity = connection.identity
            withdrawn = whose.get(id(identity))
            if identity is None or withdrawn is None:
                continue
            if withdrawn:
                error = ServiceError("token_invalid", "the API key was removed")
            else:
                error = ServiceError("going_away", "the entry of the API key has changed")
            ended[error.message, identity.key_id or ""] += 1
            self._end(connection, error)
        for (change, key), count in ended.items():
            logger.info("%s: %s; connections closed: %d", change, key, count)

    # ------------------------------------------------------------ deadlines

    def expire_in(self, connection: Connection, seconds: float) -> None:
        """Expire the token, as a fault for tests."""
        now = self._core.clock()
        connection.deadline = now + seconds
        connection.notice_at = connection.deadline - self._notice if seconds > 0 else NEVER
        self._core.schedule(connection, self._next(connection, now))

    def check(self, connection: Connection, now: float) -> float | None:
        """Check one connection; see `wheel.Waiting.due`."""
        if connection.closed:
            self._doubted.pop(connection, None)
            return None
        if connection.next_check > now:
            return None
        late = now - connection.next_check
        connection.next_check = NEVER
        if now >= connection.deadline:
            self._doubted.pop(connection, None)
            if connection.identity is None:
                self._end(
                    connection,
                    ServiceError("auth_timeout", "the client did not send `auth` in time"),
                )
            else:
                self._end(
                    connection,
                    ServiceError("token_expired", "the token has expired, and no new one arrived"),
                )
            return None
        if connection.identity is not None:
            self._give_notice(connection, now)
            if not self._keep_alive(connection, now, late):
                return None
        connection.next_check = self._next(connection, now)
        return None if connection.next_check == NEVER else connection.next_check

    def _next(self, connection: Connection, now: float) -> float:
        at = connection.deadline
        if connection.identity is None:
            return at
        if connection.notice_at < at:
            at = max(now, connection.notice_at)
        liveness = connection.encoder.liveness
        if liveness is Liveness.COMMENTS:
            return min(at, now + self._comment)
        if liveness is Liveness.NONE:
            return at
        if connection in self._doubted:
            return min(at, self._doubted[connection])
        wait = self._ping if now - connection.last_received < self._ping else self._timeout
        asked = min(
            connection.last_received + min(wait, self._timeout),
            connection.last_spoke + self._program,
        )
        # Wait for the next round: pings sent together cost half as much as single ones.
        asked = -(-asked // self._together) * self._together
        return asked if asked < at else at

    def _give_notice(self, connection: Connection, now: float) -> None:
        if now < connection.notice_at:
            return
        connection.notice_at = NEVER
        identity = connection.identity
        frame: dict[str, object] = {
            "type": "auth.expiring",
            "expires_in": max(0, int((connection.deadline - now) * 1000)),
        }
        if identity is not None and identity.expires_at is not None:
            frame["expires_at"] = identity.expires_at
        self._core.send(connection, frame)

    def _keep_alive(self, connection: Connection, now: float, late: float) -> bool:
        """Ping a quiet connection, and end a silent one at the second check.

        After a pause of this process, the bytes of the client may be there, but unread. A ping that
        was delayed as well gets as much time for its answer as this check was ``late``.
        """
        liveness = connection.encoder.liveness
        if liveness is Liveness.COMMENTS:
            self._core.delivery.send_now(connection, connection.encoder.keepalive)
            return True
        if liveness is Liveness.NONE:
            return True
        if connection.busy and not self._core.delivery.crowded(connection):
            # The server does not read from it until its request is done.
            connection.last_received = connection.last_spoke = now
        silence = now - connection.last_received
        if silence >= self._timeout:
            reason = "the client sent nothing for too long"
        elif now - connection.last_spoke >= self._program:
            reason = f"the client sent no frame for {self._program:g} s; send a `ping` every 15 s"
        else:
            reason = None
            self._doubted.pop(connection, None)
        if reason is not None:
            again = self._doubted.setdefault(
                connection, now + min(max(late, TICK), self._timeout / 2)
            )
            if now >= again:
                del self._doubted[connection]
                self._end(connection, ServiceError("idle_timeout", reason))
                return False
        if silence >= self._ping:
            self._core.delivery.send_now(connection, connection.encoder.keepalive)
        return True


def _still_open(connection: Connection) -> None:
    if connection.closed:
        raise ServiceError("unauthenticated", "the connection has ended")
