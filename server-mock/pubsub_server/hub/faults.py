"""Fault injection for a server under test (`--faults`).

Without `--faults` there is no cost: only then is `Faults` between backplane and hub. A schedule is
a pure function of its seed, so a run can be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pubsub_server.errors import ServiceError
from pubsub_server.shared.connection import FROZEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.hub.hub import Hub
    from pubsub_server.shared.connection import Connection

STEPS_MAX: Final = 10_000
DAY_MS: Final = 86_400_000


class _Fault(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)


class Drop(_Fault):
    """Cut connections without a close frame.

    Attributes:
        user: Only of this user.
        after: Cut a connection after this many more messages, not now.
        times: With ``after``: number of connections to cut, including future ones.
    """

    fault: Literal["drop"] = "drop"
    user: str | None = None
    after: Annotated[int | None, Field(ge=1)] = None
    times: Annotated[int, Field(ge=1)] = 1


class Delay(_Fault):
    """Delay every delivery; 0 ends the delay. Messages keep their order.

    Attributes:
        ms: Milliseconds.
        jitter: Maximum random addition in milliseconds.
    """

    fault: Literal["delay"] = "delay"
    ms: Annotated[int, Field(ge=0, le=DAY_MS)]
    jitter: Annotated[int, Field(ge=0, le=DAY_MS)] = 0


class Evict(_Fault):
    """Remove retained messages.

    Attributes:
        topic: Only of this topic.
        log: Also remove the numbering, as if the store had been lost.
    """

    fault: Literal["evict"] = "evict"
    topic: str | None = None
    log: bool = False


class Expire(_Fault):
    """Expire the tokens of open connections.

    Attributes:
        user: Only of this user.
        ms: In this many milliseconds; ``auth.expiring`` is sent before, except at 0.
    """

    fault: Literal["expire"] = "expire"
    user: str | None = None
    ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 0


class Refuse(_Fault):
    """Reject new connections, or accept them again."""

    fault: Literal["refuse"] = "refuse"
    on: bool = True


class Freeze(_Fault):
    """Stop reading from and writing to open connections, or continue.

    Attributes:
        on: True to stop, False to continue.
        user: Only of this user.
    """

    fault: Literal["freeze"] = "freeze"
    on: bool = True
    user: str | None = None


class Clear(_Fault):
    """End all faults and the schedule."""

    fault: Literal["clear"] = "clear"


class Play(_Fault):
    """Run the schedule `plan(seed, ms, steps)`.

    Attributes:
        seed: Seed of the schedule.
        ms: Its duration in milliseconds.
        steps: Number of faults.
    """

    fault: Literal["play"] = "play"
    seed: int
    ms: Annotated[int, Field(ge=1, le=DAY_MS)]
    steps: Annotated[int, Field(ge=1, le=STEPS_MAX)]


Fault = Drop | Delay | Evict | Expire | Refuse | Freeze | Clear
_ANY: Final[TypeAdapter[Fault | Play]] = TypeAdapter(
    Annotated[Fault | Play, Field(discriminator="fault")]
)


@runtime_checkable
class Freezable(Protocol):
    """A sink that can stop reading."""

    def freeze(self, frozen: bool) -> None:
        """Stop reading, or continue."""
        ...


@dataclass(slots=True)
class _Cut:
    user: str | None
    after: int
    times: int
    sent: dict[Connection, int] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]


def plan(seed: int, ms: int, steps: int) -> list[tuple[int, Fault]]:
    """A schedule of faults, each with its time in milliseconds; the same for the same seed.

    It ends with `Clear`, so that the faults end with it.
    """
    chance = random.Random(seed)  # noqa: S311
    schedule: list[tuple[int, Fault]] = []
    for at in sorted(chance.randrange(ms) for _ in range(steps)):
        kind = chance.choices(
            ("drop", "cut", "delay", "expire", "evict", "refuse"), (6, 4, 4, 3, 1, 1)
        )[0]
        match kind:
            case "drop":
                schedule.append((at, Drop()))
            case "cut":
                schedule.append((at, Drop(after=chance.randrange(1, 100))))
            case "delay":
                schedule.append((at, Delay(ms=chance.randrange(50), jitter=chance.randrange(50))))
            case "expire":
                schedule.append((at, Expire(ms=chance.choice((0, 100, 1000)))))
            case "evict":
                schedule.append((at, Evict()))
            case _:
                schedule.append((at, Refuse(on=True)))
                schedule.append((min(ms, at + chance.randrange(1, 500)), Refuse(on=False)))
    return [*sorted(schedule, key=lambda step: step[0]), (ms, Clear())]


class Faults:
    """Performs faults on a hub.

    Args:
        hub: The hub to disturb.
        seed: Seed of the jitter.
    """

    def __init__(self, hub: Hub, seed: int = 0) -> None:
        self._hub = hub
        self._chance = random.Random(seed)  # noqa: S311
        self._cuts: list[_Cut] = []
        self._delay = Delay(ms=0)
        self._late: deque[Entry] = deque()
        self._due = 0.0
        self._frozen: dict[Connection, None] = {}
        self._timers: list[asyncio.TimerHandle] = []
        hub.core.backplane.start(self.deliver)

    def perform(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Perform the fault of a request, for example ``{"fault": "drop", "user": "alice"}``.

        Returns:
            The number of affected ``connections``, or the ``plan``.

        Raises:
            ServiceError: `invalid_frame`, naming the field.
        """
        try:
            fault = _ANY.validate_python(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            # The first part names the kind of fault.
            where = ".".join(str(part) for part in first["loc"][1:]) or "fault"
            raise ServiceError("invalid_frame", f"`{where}`: {first['msg']}", field=where) from None
        if isinstance(fault, Play):
            schedule = plan(fault.seed, fault.ms, fault.steps)
            self.play(schedule)
            return {"plan": [{"at": at, **step.model_dump()} for at, step in schedule]}
        return {"connections": self.inject(fault)}

    def inject(self, fault: Fault) -> int:
        """Perform one fault and return the number of affected connections."""
        match fault:
            case Drop():
                return self._drop(fault)
            case Delay():
                self._delay = fault
            case Evict():
                self._hub.core.backplane.logs.evict(fault.topic, log_too=fault.log)
            case Expire():
                chosen = self._of(fault.user)
                for connection in chosen:
                    self._hub.admission.expire_in(connection, fault.ms / 1000)
                return len(chosen)
            case Refuse():
                self._hub.refusing = fault.on
            case Freeze():
                return self._freeze(fault)
            case Clear():
                self._clear()
        return 0

    def play(self, schedule: Sequence[tuple[int, Fault]]) -> None:
        """Inject each fault at its time, in milliseconds from now; replaces a running schedule."""
        self._stop()
        loop = asyncio.get_running_loop()
        start = loop.time()
        in_order = sorted(schedule, key=lambda step: step[0])
        faults = iter([fault for _, fault in in_order])
        for at, _ in in_order:
            # The loop calls timers of one time in any order, so each takes the next fault.
            self._timers.append(loop.call_at(start + at / 1000, lambda: self.inject(next(faults))))

    def deliver(self, entry: Entry) -> None:
        """Replaces `Hub.deliver`."""
        wait = self._delay.ms + (
            self._chance.randrange(self._delay.jitter) if self._delay.jitter else 0
        )
        if not wait and not self._late:
            self._now(entry)
            return
        loop = asyncio.get_running_loop()
        self._late.append(entry)
        # Keep the order of messages.
        self._due = max(self._due, loop.time() + wait / 1000)
        loop.call_at(self._due, self._next)

    # ------------------------------------------------------------ inside

    def _next(self) -> None:
        if self._late:
            self._now(self._late.popleft())

    def _now(self, entry: Entry) -> None:
        self._hub.deliver(entry)
        if not self._cuts:
            return
        route = self._hub.core.router.route(entry.topic)
        for connection in tuple(route):
            for cut in tuple(self._cuts):
                if self._counted(cut, connection):
                    break

    def _counted(self, cut: _Cut, connection: Connection) -> bool:
        identity = connection.identity
        if cut.user is not None and (identity is None or identity.user_id != cut.user):
            return False
        sent = cut.sent[connection] = cut.sent.get(connection, 0) + 1
        if sent < cut.after:
            return False
        cut.times -= 1
        del cut.sent[connection]
        if not cut.times:
            self._cuts.remove(cut)
        # After this loop turn: the message that reached the number is still sent.
        asyncio.get_running_loop().call_soon(self._cut, connection)
        return True

    def _cut(self, connection: Connection) -> None:
        self._hub.core.delivery.flush()
        if not connection.closed:
            sink = connection.sink
            self._hub.closed(connection, None)
            sink.abort()

    def _drop(self, fault: Drop) -> int:
        if fault.after is not None:
            self._cuts.append(_Cut(fault.user, fault.after, fault.times))
            return 0
        chosen = self._of(fault.user)
        for connection in chosen:
            self._cut(connection)
        return len(chosen)

    def _freeze(self, fault: Freeze) -> int:
        delivery = self._hub.core.delivery
        if not fault.on:
            frozen = [c for c in self._frozen if fault.user is None or _user(c) == fault.user]
            for connection in frozen:
                del self._frozen[connection]
                if not connection.closed:
                    _read(connection, False)
                    delivery.release(connection, FROZEN)
            return len(frozen)
        chosen = self._of(fault.user)
        for connection in chosen:
            self._frozen[connection] = None
            _read(connection, True)
            delivery.stall(connection, FROZEN)
        return len(chosen)

    def _clear(self) -> None:
        self._cuts.clear()
        self._delay = Delay(ms=0)
        self._hub.refusing = False
        self._freeze(Freeze(on=False))
        self._stop()
        while self._late:
            self._next()

    def _stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _of(self, user: str | None) -> list[Connection]:
        return [c for c in self._open() if user is None or _user(c) == user]

    def _open(self) -> Iterator[Connection]:
        yield from tuple(self._hub.core.connections.values())


def _user(connection: Connection) -> str | None:
    return None if connection.identity is None else connection.identity.user_id


def _read(connection: Connection, frozen: bool) -> None:
    if isinstance(connection.sink, Freezable):
        connection.sink.freeze(frozen)
