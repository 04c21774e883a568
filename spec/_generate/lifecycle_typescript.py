"""Writes TypeScript code for the lifecycle: a function per event, calling guards and actions."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from spec._generate.text import camel, header, single, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spec._generate.lifecycle import Lifecycle, Row

_Way: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]"
"""A row without its state: guards, steps before, new states (two: of a fork), steps after."""


def lifecycle(machine: Lifecycle) -> str:
    """The module `generated/lifecycle.ts`, without the events of `connected`.

    Faults, which cannot happen, are left out. So are final states, which ignore all events.
    """
    public = dict.fromkeys(machine.public.values())
    elsewhere = _welcomed(machine) | set(machine.timers.values())
    out = [
        header("//", "spec/lifecycle.yaml"),
        "",
        *union("State", machine.states, "State of a session in the lifecycle."),
        *union("PublicState", public, "State of a session that users see."),
        *union("Timer", machine.timers, "The timers of the lifecycle."),
        f"export const INITIAL: State = {single(machine.initial)};",
        "",
        "/** States that users see under another name. */",
        "const SEEN_AS: Readonly<Partial<Record<State, PublicState>>> = {",
        *(f"  {state}: {single(seen)}," for state, seen in machine.public.items() if state != seen),
        "};",
        "",
        "/** What users see of a state. */",
        "export function publicState(state: State): PublicState {",
        "  return SEEN_AS[state] ?? (state as PublicState);",
        "}",
        "",
        "/** What a session knows to do and to answer; `E` is what it calls an event. */",
        "export interface Steps<E> {",
        "  readonly state: State;",
        "  /** Enter a state and report it. */",
        "  _enter(to: State, event: E): void;",
        "  _start(timer: Timer): void;",
        "  _stop(...timers: readonly Timer[]): void;",
    ]
    for guard, asked in machine.asks.items():
        kind = f"_{camel(guard)}(event: E): boolean" if asked.of_event else _field(guard)
        out += [f"  /** Whether {asked.means}. */", f"  {kind};"]
    out += [f"  _{camel(action)}(event: E): void;" for action in machine.actions]
    for part, methods in groupby(machine.part_actions, key=lambda action: action.split(".")[0]):
        each = "; ".join(f"_{camel(method.split('.')[1])}(): void" for method in methods)
        out.append(f"  readonly _{part}: {{ {each} }};")
    out += [
        "}",
        "",
        *_functions(machine, [event for event in machine.sources if event not in elsewhere]),
        "/** What happens when a timer runs out. */",
        "export const ON_TIMER: Readonly<Record<string, <E>(m: Steps<E>, e: E) => void>> = {",
        *(line for timer in machine.timers for line in _timer(machine, timer)),
        "};",
        "",
    ]
    return "\n".join(out)


def connected(machine: Lifecycle) -> str:
    """The module `generated/connected.ts`: the welcome of a server, and the events of `connected`.

    It loads beside the first connection, before a server welcomes the client.
    """
    welcomed = _welcomed(machine)
    return "\n".join(
        [
            header("//", "spec/lifecycle.yaml"),
            "",
            "import type { Steps } from './lifecycle.js';",
            "",
            *_functions(machine, [event for event in machine.sources if event in welcomed]),
        ]
    )


def _welcomed(machine: Lifecycle) -> frozenset[str]:
    """The frames of a server that has accepted the token."""
    frames = {event for event, source in machine.sources.items() if source == "frame"}
    return frozenset(frames - {"auth.error"})


def _functions(machine: Lifecycle, events: Iterable[str]) -> Iterator[str]:
    """A function for each event; events with the same rows share one."""
    written: dict[str, str] = {}
    for event in events:
        body = "\n".join(_event(machine, event))
        name = _function(event)
        yield f"/** `{event}`, from the {machine.sources[event]}. */"
        if same := written.get(body):
            yield from (f"export const {name}: typeof {same} = {same};", "")
            continue
        written[body] = name
        yield from (f"export function {name}<E>(m: Steps<E>, {_given(body)}: E): void {{", body)
        yield from ("}", "")


def _timer(machine: Lifecycle, timer: str) -> list[str]:
    """The method for a timer that ran out."""
    body = "\n".join(_event(machine, machine.timers[timer]))
    return [f"{timer}(m, {_given(body)}) {{", body, "},"]


def _given(body: str) -> str:
    """The name of the event as an argument."""
    return "e" if re.search(r"\be\b", body) else "_"


def _field(guard: str) -> str:
    return f"readonly _{camel(guard)}: boolean"


def _function(event: str) -> str:
    return camel(f"on_{event.replace('.', '_')}")


def _event(machine: Lifecycle, event: str) -> list[str]:
    groups: defaultdict[tuple[_Way, ...], list[str]] = defaultdict(list)
    for state in machine.states:
        if state not in machine.final and (state, event) not in machine.faults:
            groups[_ways(machine.table[state].get(event, ()), state)].append(state)
    ignored = groups.pop((), [])
    if len(groups) == 1:
        ((ways, states),) = groups.items()
        body = _chain(machine, ways)
        if not ignored and machine.sources[event] not in {"user", "session"}:
            return body  # what causes it has ended with the session
        if not ignored:
            unfinished = " && ".join(f"m.state !== {single(state)}" for state in machine.final)
            return [f"if ({unfinished}) {{", *body, "}"]
        outside = len(ignored) < len(states)
        compared = [
            f"m.state {'!==' if outside else '==='} {single(state)}"
            for state in (ignored if outside else states)
        ]
        return [f"if ({(' && ' if outside else ' || ').join(compared)}) {{", *body, "}"]
    usual = () if ignored else max(groups, key=lambda ways: len(groups[ways]))
    out = ["switch (m.state) {"]
    for ways, states in sorted(groups.items(), key=lambda group: group[0] == usual):
        out += ["default:"] if ways == usual else [f"case {single(state)}:" for state in states]
        out += _chain(machine, ways)
        out.append("break;")
    return [*out[:-1], "}"]


def _ways(rows: Iterable[Row], state: str) -> tuple[_Way, ...]:
    """The rows of a state, without its name; a fork is one row."""
    ways: list[_Way] = []
    for row in rows:
        to = () if row.to == state else (row.to,)
        if ways:
            guards, before, other, actions = ways[-1]
            if guards[:-1] == row.guards and (before, actions) == (row.before, row.actions):
                ways[-1] = (row.guards, before, (guards[-1], *other, *to), actions)
                continue
        ways.append((row.guards, row.before, to, row.actions))
    return tuple(ways)


def _chain(machine: Lifecycle, ways: Sequence[_Way]) -> list[str]:
    """The first transition whose guards hold."""
    (guards, before, to, actions), *rest = ways
    body = [*_steps(before), *_change(to), *_steps(actions)]
    asked = " && ".join(
        f"m._{camel(guard)}{'(e)' if machine.asks[guard].of_event else ''}" for guard in guards
    )
    if not guards:
        return body
    if not rest:
        return [f"if ({asked}) {{", *body, "}"]
    others = _chain(machine, rest)
    if not body:
        return [f"if (!{asked}) {{", *others, "}"]
    if rest[0][0]:
        return [f"if ({asked}) {{", *body, f"}} else {others[0]}", *others[1:]]
    return [f"if ({asked}) {{", *body, "} else {", *others, "}"]


def _call(action: str) -> str:
    part, _, method = action.rpartition(".")
    return f"m._{part}._{camel(method)}()" if part else f"m._{camel(method)}(e)"


def _change(to: Sequence[str]) -> list[str]:
    if not to:
        return []
    if len(to) == 1:
        return [f"m._enter({single(to[0])}, e);"]
    guard, yes, no = to
    return [f"m._enter(m._{camel(guard)} ? {single(yes)} : {single(no)}, e);"]


def _steps(steps: Iterable[str]) -> list[str]:
    out: list[str] = []
    for sign, some in groupby(steps, key=lambda step: step[0] if step[0] in "+-" else ""):
        if sign == "-":
            out.append(f"m._stop({', '.join(single(step[1:]) for step in some)});")
        elif sign == "+":
            out += [f"m._start({single(step[1:])});" for step in some]
        else:
            out += [f"{_call(step)};" for step in some]
    return out
