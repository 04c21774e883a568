"""Presence changes for subscriptions that requested them, on their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.session.members import PresenceMembers
from hanzoai.pubsub.topics import matches
from hanzoai.pubsub.values import PresenceChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.generated.wire import Message, PresenceSnapshotFrame
    from hanzoai.pubsub.session.context import Context
    from hanzoai.pubsub.session.routes import Routes
    from hanzoai.pubsub.session.subscription_state import SubscriptionState


class Presence:
    """Member maps, and the subscriptions that receive their changes."""

    def __init__(self, context: Context, routes: Routes) -> None:
        self._ports = context.ports
        self._timers = context.timers
        self._routes = routes
        self.members: Final = PresenceMembers()

    # ---------------------------------------------------------------- from the server

    def message(self, message: Message, states: Sequence[SubscriptionState]) -> None:
        """Process a join, update or leave for these subscriptions."""
        if any(map(_wants, states)):
            self._show_all(self.members.apply(message))

    def snapshot(self, frame: PresenceSnapshotFrame) -> None:
        """Process the list of all members of a topic."""
        if self._wanted(frame.topic):
            self._show_all(self.members.snapshot(frame.topic, frame.members))

    def reconnected(self, *, known: bool) -> None:
        """The connection is restored; `known`: otherwise, members may return with other ids."""
        if self.members.reconnected(known=known):
            self._timers.start("grace", LIMITS.presence_grace)

    def expire(self) -> None:
        """The timer `grace` fired: drop members that have not returned."""
        self._show_all(self.members.expire())

    # ---------------------------------------------------------------- from the subscriptions

    def show(self, state: SubscriptionState, *, hidden: bool = False) -> None:
        """Report the known members of the topics that no route leads to it, before one does.

        `hidden`: they were rejected temporarily; report empty lists.
        """
        for topic, members in self.members.complete() if _wants(state) else ():
            if _covers(state, topic) and not self._leads_to(state, topic):
                change = PresenceChange(topic, () if hidden else members, "snapshot")
                self._ports.presence_changed(state.sub, change)

    def keep_topics(self) -> None:
        """Drop topics without a subscription that requested presence."""
        self.members.keep(self._wanted)

    def answered(self, state: SubscriptionState) -> None:
        """The server answered a subscription: drop members that no snapshot will confirm."""
        if _wants(state):
            watching = [other for other in self._routes.all.values() if _wants(other)]
            changes = self.members.forget_unproven(
                lambda topic: self._leads_to(state, topic),
                lambda topic: any(topic in other.patterns for other in watching),
            )
            self._show_all(changes)

    def watches(self, state: SubscriptionState) -> bool:
        """Whether presence is wanted by any subscription that shares a pattern with this one."""
        mine = set(state.patterns)
        return any(
            _wants(other) and not mine.isdisjoint(other.patterns)
            for other in self._routes.all.values()
        )

    # ---------------------------------------------------------------- inside

    def _leads_to(self, state: SubscriptionState, topic: str) -> bool:
        return state in self._routes.find(topic)

    def _wanted(self, topic: str) -> bool:
        return any(map(_wants, self._routes.find(topic)))

    def _show_all(self, changes: Sequence[PresenceChange]) -> None:
        for change in changes:
            for state in filter(_wants, self._routes.find(change.topic)):
                self._ports.presence_changed(state.sub, change)


def _wants(state: SubscriptionState) -> bool:
    return state.request.presence


def _covers(state: SubscriptionState, topic: str) -> bool:
    """Whether a pattern of the subscription matches the topic."""
    return any(matches(pattern, topic) for pattern in state.patterns)
