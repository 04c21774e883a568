"""Known addresses of nodes, and when to dial each of them; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEARNED_MAX: Final = 256
"""Maximum addresses learned from other nodes; more are ignored."""
AT_ONCE: Final = 8
"""Maximum connections that are being opened at the same time."""
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 5.0
"""Maximum seconds between two attempts to reach an address; the pause doubles up to this."""
FORGET_AFTER: Final = 60.0
"""Seconds without a connection after which an address that is not in the settings is forgotten."""


@dataclass(slots=True)
class _Known:
    configured: bool
    node: str = ""
    next: float = 0.0
    wait: float = FIRST_WAIT
    lonely: float = 0.0
    dialing: bool = False
    tried: bool = False


class Members:
    """Addresses of nodes, learned from the settings and from peers.

    Args:
        configured: Addresses that are dialed without limit.
        random: From 0 inclusive to 1 exclusive; spreads attempts.

    Attributes:
        ignored: Number of addresses that exceeded the limit.
    """

    def __init__(self, configured: Iterable[str], random: Callable[[], float]) -> None:
        self.ignored = 0
        self._random = random
        self._known = {address: _Known(configured=True) for address in configured}
        self._own: set[str] = set()
        self._learned = 0

    def __len__(self) -> int:
        return len(self._known)

    def configured(self, address: str) -> bool:
        """Whether the address is in the settings."""
        known = self._known.get(address)
        return known is not None and known.configured

    def learn(self, node: str, address: str, now: float, *, patience: float = 0.0) -> None:
        """A peer has reported a node.

        Args:
            node: Its id.
            address: Its address.
            now: Monotonic seconds.
            patience: Seconds to wait for the node to dial first.
        """
        if address in self._own:
            return
        known = self._known.get(address)
        if known is not None:
            known.node = node
            known.lonely = now
            return
        if self._learned >= LEARNED_MAX:
            self.ignored += 1
            return
        self._learned += 1
        self._known[address] = _Known(False, node, now + patience, lonely=now)

    def mine(self, address: str) -> None:
        """The address is this node's; one from the settings may also belong to others."""
        known = self._known.get(address)
        if known is None or not known.configured:
            self._own.add(address)
            self._forget(address)

    def gone(self, node: str) -> None:
        """A node announced its end."""
        for address in [each for each, known in self._known.items() if known.node == node]:
            known = self._known[address]
            known.node = ""
            if not known.configured:
                self._forget(address)

    def due(self, linked: Callable[[str], bool], now: float) -> list[str]:
        """Addresses to dial now; report the result of each with `dialed`.

        Args:
            linked: Whether there is a connection with a node.
            now: Monotonic seconds.
        """
        found: list[str] = []
        free = AT_ONCE - sum(known.dialing for known in self._known.values())
        for address, known in list(self._known.items()):
            if known.node and linked(known.node):
                known.lonely, known.wait = now, FIRST_WAIT
                known.next = max(known.next, now + FIRST_WAIT)
            elif not known.configured and now - known.lonely >= FORGET_AFTER and not known.dialing:
                self._forget(address)
            elif free > 0 and not known.dialing and now >= known.next:
                known.dialing = True
                free -= 1
                found.append(address)
        return found

    def dialed(self, address: str, node: str | None, now: float) -> None:
        """An attempt has ended.

        Args:
            address: The dialed address.
            node: Id of the node that answered; empty for a plain peer; None if there was no answer.
            now: Monotonic seconds.
        """
        known = self._known.get(address)
        if known is None:
            return
        known.dialing = False
        known.tried = True
        if node is not None:
            known.node = node
        known.next = now + known.wait * (0.5 + self._random() / 2)
        known.wait = min(LONGEST_WAIT, known.wait * 2)

    def untried(self, linked: Callable[[str], bool]) -> bool:
        """Whether there are addresses that have not been tried."""
        return any(
            not known.tried and not (known.node and linked(known.node))
            for known in self._known.values()
        )

    def _forget(self, address: str) -> None:
        known = self._known.pop(address, None)
        if known is not None and not known.configured:
            self._learned -= 1
