"""Reads and checks lifecycle.yaml; expands its short forms into a row per state and event."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from spec._generate import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class SpecError(Exception):
    """An input of the generator contradicts itself; the message names the file and position."""


@dataclass(frozen=True)
class Row:
    """A transition from a state at an event; it applies if all its guards hold.

    Attributes:
        guards: Conditions that must hold.
        before: Steps before the change of state is reported.
        to: The next state.
        actions: Steps after the change of state.
    """

    guards: tuple[str, ...]
    before: tuple[str, ...]
    to: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Guard:
    """A condition of rows. With ``of_event`` it depends on the event, not only on the session."""

    of_event: bool
    means: str


@dataclass(frozen=True)
class Lifecycle:
    """The compiled machine.

    An event whose cell has no rows is ignored; a pair without a cell is a fault.
    """

    initial: str
    final: tuple[str, ...]
    public: dict[str, str]
    means: dict[str, str]
    timers: dict[str, str]
    sources: dict[str, str]
    asks: dict[str, Guard]
    table: dict[str, dict[str, tuple[Row, ...]]]
    falls_through: frozenset[tuple[str, str]]
    faults: dict[tuple[str, str], str]

    @property
    def states(self) -> tuple[str, ...]:
        """All states, in the order of the file."""
        return tuple(self.public)

    @property
    def events(self) -> tuple[str, ...]:
        """All events, in the order of the file."""
        return tuple(self.sources)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """All rows with their states and events."""
        for state, cells in self.table.items():
            for event, rows in cells.items():
                for row in rows:
                    yield state, event, row

    @property
    def guards(self) -> tuple[str, ...]:
        """All guards, sorted."""
        return tuple(sorted({guard for _, _, row in self.rows() for guard in row.guards}))

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions of the session itself, sorted."""
        return tuple(sorted(self._done() - {*self.timer_steps, *self.part_actions}))

    @property
    def part_actions(self) -> tuple[str, ...]:
        """All actions of a part of the session (`attempts.schedule`), sorted."""
        return tuple(sorted(action for action in self._done() if "." in action))

    @property
    def timer_steps(self) -> tuple[str, ...]:
        """All actions that start (`+ping`) or stop (`-ping`) a timer, sorted."""
        return tuple(sorted(action for action in self._done() if action[0] in "+-"))

    def _done(self) -> set[str]:
        return {step for _, _, row in self.rows() for step in (*row.before, *row.actions)}


def load(path: Path) -> Lifecycle:
    """Read and check a lifecycle file."""
    return compile_lifecycle(yaml_text.parse(path.read_text(encoding="utf-8")))


def compile_lifecycle(spec: dict[str, Any]) -> Lifecycle:
    """Expand the short forms and check the table. Raises SpecError for a contradiction."""
    states: dict[str, dict[str, str]] = spec["states"]
    sources: dict[str, str] = spec["events"]
    _check_names(spec)
    table: dict[str, dict[str, list[Row]]] = {state: {} for state in states}
    for row in spec["rows"]:
        _known("rows", row, {"from", "event", "if", "before", "to", "do"})
        _some([action[1:] for action in row["do"] if action[0] in "+-"], spec["timers"])
        for state, event in product(_some(row["from"], states), _some(row["event"], sources)):
            cell = table[state].setdefault(event, [])
            if cell and not cell[-1].guards:
                raise SpecError(f"lifecycle.yaml: unreachable row after an unguarded one: {row}")
            cell.extend(_expand(row, state, spec["forks"], states))
    ignored = _pairs(spec["ignore"], states, sources)
    faults = {
        pair: str(entry["because"])
        for entry in spec.get("faults", ())
        for pair in _pairs([entry], states, sources)
    }
    falls_through: set[tuple[str, str]] = set()
    for state, event in product(states, sources):
        rows, pair = table[state].get(event, []), (state, event)
        complete = bool(rows) and not rows[-1].guards
        if complete and pair in ignored:
            raise SpecError(f"lifecycle.yaml: both a row for all cases and ignored: {pair}")
        if pair in faults and (rows or pair in ignored):
            raise SpecError(f"lifecycle.yaml: both a fault and something else: {pair}")
        if rows and not complete:
            if pair not in ignored:
                raise SpecError(f"lifecycle.yaml: all guards may fail and nothing follows: {pair}")
            falls_through.add(pair)
        if not rows and pair not in ignored and pair not in faults:
            raise SpecError(f"lifecycle.yaml: neither a row, nor ignored, nor a fault: {pair}")
        if pair in ignored:
            table[state].setdefault(event, [])
    machine = Lifecycle(
        initial=spec["initial"],
        final=tuple(spec["final"]),
        public={name: state["public"] for name, state in states.items()},
        means={name: state["means"] for name, state in states.items()},
        timers=dict(spec["timers"]),
        sources=dict(sources),
        asks={
            name: Guard(guard["asks"] == "event", guard["means"])
            for name, guard in spec["guards"].items()
        },
        table={
            state: {event: tuple(cells[event]) for event in sources if event in cells}
            for state, cells in table.items()
        },
        falls_through=frozenset(falls_through),
        faults=faults,
    )
    _check_reach(machine)
    return machine


def _list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def _some(value: str | list[str], names: Iterable[str]) -> list[str]:
    wanted = list(names) if value == "*" else _list(value)
    for name in wanted:
        if name not in names:
            raise SpecError(f"lifecycle.yaml: unknown name {name!r}")
    return wanted


def _known(place: str, entry: dict[str, Any], keys: set[str]) -> None:
    if not entry.keys() <= keys:
        raise SpecError(f"lifecycle.yaml, {place}: unknown keys {sorted(entry.keys() - keys)}")


def _pairs(
    entries: list[dict[str, Any]], states: Iterable[str], events: Iterable[str]
) -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for entry in entries:
        _known("ignore, faults", entry, {"in", "event", "because"})
        for pair in product(_some(entry["in"], states), _some(entry["event"], events)):
            if pair in pairs:
                raise SpecError(f"lifecycle.yaml: defined twice: {pair}")
            pairs.add(pair)
    return pairs


def _expand(
    row: dict[str, Any], state: str, forks: dict[str, dict[str, str]], states: Iterable[str]
) -> list[Row]:
    guards = tuple(_list(row.get("if", [])))
    before = tuple(_list(row.get("before", [])))
    actions = tuple(row["do"])
    if row["to"] == "same":
        return [Row(guards, before, state, actions)]
    if fork := forks.get(row["to"]):
        return [
            Row((*guards, fork["if"]), before, _some(fork["then"], states)[0], actions),
            Row(guards, before, _some(fork["else"], states)[0], actions),
        ]
    return [Row(guards, before, _some(row["to"], states)[0], actions)]


def _check_names(spec: dict[str, Any]) -> None:
    sources: dict[str, str] = spec["events"]
    timed = {event for event, source in sources.items() if source == "timer"}
    if set(spec["timers"].values()) != timed or len(spec["timers"]) != len(timed):
        raise SpecError("lifecycle.yaml: timers and timer events are not one to one")
    if unknown := set(sources.values()) - {"user", "shell", "frame", "timer", "session"}:
        raise SpecError(f"lifecycle.yaml: unknown source of events {sorted(unknown)}")
    _some(spec["final"], spec["states"])
    _some(spec["initial"], spec["states"])


def _check_reach(machine: Lifecycle) -> None:
    reached: set[str] = set()
    ahead = [machine.initial]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += [row.to for rows in machine.table[state].values() for row in rows]
    if missing := set(machine.states) - reached:
        raise SpecError(f"lifecycle.yaml: no row leads to {sorted(missing)}")
    for state, event, row in machine.rows():
        if state in machine.final and row.to != state:
            raise SpecError(f"lifecycle.yaml: {state!r} is final and left on {event!r}")
    fired = {event for _, event, _ in machine.rows()}
    if missing := set(machine.events) - fired:
        raise SpecError(f"lifecycle.yaml: no row fires on {sorted(missing)}")
    if unlike := set(machine.guards) ^ set(machine.asks):
        raise SpecError(f"lifecycle.yaml: guards without a row or a meaning: {sorted(unlike)}")
    if both := set(machine.guards) & set(machine.actions):
        raise SpecError(f"lifecycle.yaml: both a guard and an action: {sorted(both)}")
