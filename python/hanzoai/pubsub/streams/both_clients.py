"""Adapts functions to both clients, asyncio and blocking: each returns a matching object."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from hanzoai.pubsub.blocking.client import PubSub, in_thread, inside

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.client import PubSubClient

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)


class ForBothClients(Protocol[P, A_co, B_co]):
    """Type of the functions that `for_both_clients` returns."""

    @overload
    def __call__(self, client: PubSubClient, /, *args: P.args, **kwargs: P.kwargs) -> A_co: ...

    @overload
    def __call__(self, client: PubSub, /, *args: P.args, **kwargs: P.kwargs) -> B_co: ...


_HANDLERS: Final = frozenset({"on_cancel", "on_steer"})
"""Arguments that are functions of the program, which may call the client."""


def for_both_clients(
    blocking: Callable[[A, Callable[..., Any]], B],
) -> Callable[[Callable[Concatenate[PubSubClient, P], A]], ForBothClients[P, A, B]]:
    """Make a function of a ``PubSubClient`` also accept a ``PubSub``.

    Args:
        blocking: Creates the blocking object from the returned object and a function that calls
            into the event loop of the client.
    """

    def decorate(
        make: Callable[Concatenate[PubSubClient, P], A],
    ) -> ForBothClients[P, A, B]:
        @functools.wraps(make)
        def made(client: PubSubClient | PubSub, /, *args: P.args, **kwargs: P.kwargs) -> A | B:
            if isinstance(client, PubSub):
                for name in _HANDLERS & kwargs.keys():
                    handler: Any = kwargs[name]
                    kwargs[name] = in_thread(client, handler)
                return blocking(*inside(client, lambda ps: make(ps, *args, **kwargs)))
            return make(client, *args, **kwargs)

        return made  # type: ignore[return-value]

    return decorate
