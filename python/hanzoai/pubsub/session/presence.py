"""Presence changes for subscriptions that requested them, on their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.session.members import PresenceMembers
from hanzoai.pubsub.session.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.generated.wire import Message, PresenceSnapshotFrame
    from hanzoai.pubsub.session.context import Context
    from hanzoai.pubsub.session.subscription_state import SubscriptionState
    from hanzoai.pubsub.values import PresenceChange


class Presence:
    """Member maps, and the subscriptions that receive their changes."""

    def __init__(self, context: Context) -> None:
        self._ports = context.ports
        self._timers = context.timers
        self._routes = Routes()  # only of subscriptions with presence
        self.members: Final = PresenceMembers()

    # ---------------------------------------------------------------- from the server

    def message(self, message: Message) -> None:
        """Process a join, update or leave."""
        if self._routes.matching(message.topic):
            self._show_all(self.members.apply(message))

    def snapshot(self, frame: PresenceSnapshotFrame) -> None:
        """Process the list of all members of a topic."""
        if self._routes.matching(frame.topic):
            self._show_all(self.members.snapshot(frame.topic, frame.members))

    def reconnected(self, *, known: bool) -> None:
        """The connection is restored; `known`: otherwise, members may return with other ids."""
        if self.members.reconnected(known=known):
            self._timers.start("grace", LIMITS.presence_grace)

    def expire(self) -> None:
        """The timer `grace` fired: drop members that have not returned."""
        self._show_all(self.members.expire())

    # ---------------------------------------------------------------- from the subscriptions

    def add(self, state: SubscriptionState) -> None:
        """Report changes to a subscription, and first the known members of topics new to it."""
        if state.request.presence:
            self.show(state, self._routed(state))
            self._routes.add(state)

    def remove(self, state: SubscriptionState, patterns: Sequence[str]) -> None:
        """Stop reporting changes of these patterns to it."""
        if state.request.presence:
            self._routes.remove(state, patterns)
            self.members.drop(patterns, self._routes)

    def show(
        self, state: SubscriptionState, others: Sequence[str], *, hidden: bool = False
    ) -> None:
        """Report the known members of its topics, but not of `others`; if `hidden`, empty lists."""
        if not state.request.presence:
            return
        for change in self.members.lists(state.patterns, others, hidden=hidden):
            self._ports.presence_changed(state.request.sub, change)

    def answered(self, state: SubscriptionState) -> None:
        """The server answered a subscription: some members may have left unnoticed."""
        if self.members.doubt(self._routed(state), self._routes.by_pattern):
            self._timers.start("grace", LIMITS.presence_grace)

    def watches(self, state: SubscriptionState) -> bool:
        """Whether presence is wanted by any subscription that shares a pattern with this one."""
        return any(pattern in self._routes.by_pattern for pattern in state.patterns)

    # ---------------------------------------------------------------- inside

    def _routed(self, state: SubscriptionState) -> list[str]:
        """The patterns whose changes are reported to a subscription."""
        routes = self._routes.by_pattern
        return [pattern for pattern in state.patterns if state in routes.get(pattern, ())]

    def _show_all(self, changes: Sequence[PresenceChange]) -> None:
        for change in changes:
            for state in self._routes.find(change.topic):
                self._ports.presence_changed(state.request.sub, change)
