"""Writes Python code for the lifecycle, errors and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec._generate.text import header, python_name, python_tuple, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spec._generate.defaults import Group
    from spec._generate.errors import Errors
    from spec._generate.lifecycle import Lifecycle


def lifecycle(machine: Lifecycle) -> str:
    """The module `generated/lifecycle.py`."""
    out = [
        header("#", "spec/lifecycle.yaml"),
        '"""The life of a session as a table, and the steps a session must know to follow it."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar",
        "",
    ]
    out += _literal("State", machine.states, "The state of a session in the table of transitions.")
    public = tuple(dict.fromkeys(machine.public.values()))
    out += _literal("PublicState", public, "The state of a session that users see.")
    out += _literal("Event", machine.events, "What may happen to a session.")
    out += _literal("Timer", machine.timers, "The timers of a session.")
    out += _literal("Guard", machine.guards, "Questions that a row asks.")
    out += _literal("Action", machine.actions, "Steps that a row takes.")
    out += _literal("PartAction", machine.part_actions, "Steps of a part: its name, its method.")
    out += _literal("TimerStep", machine.timer_steps, "Steps that start or stop a timer.")
    out += [
        f"INITIAL: Final[State] = {quoted(machine.initial)}",
        f"FINAL: Final[frozenset[State]] = frozenset({{{', '.join(map(quoted, machine.final))}}})",
        "PUBLIC: Final[dict[State, PublicState]] = {",
        *(f"    {quoted(state)}: {quoted(public)}," for state, public in machine.public.items()),
        "}",
        "TIMERS: Final[dict[Timer, Event]] = {",
        *(f"    {quoted(timer)}: {quoted(event)}," for timer, event in machine.timers.items()),
        "}",
        "",
        "",
        "class Row(NamedTuple):",
        '    """One way out of a state on an event; the first row whose guards all hold fires.',
        "",
        "    The steps of `before` run before the change of state is reported.",
        '    """',
        "",
        "    guards: tuple[Guard, ...]",
        "    before: tuple[Action, ...]",
        "    to: State",
        "    actions: tuple[Action | PartAction | TimerStep, ...]",
        "",
        "",
        'E = TypeVar("E", contravariant=True)',
        "",
        "",
        "class Steps(Protocol[E]):",
        '    """Guards and actions of the table; `E` is what a session calls an event."""',
    ]
    for guard in machine.guards:
        of_event = machine.asks[guard].of_event
        out += ["", *([] if of_event else ["    @property"])]
        out.append(f"    def {guard}(self{', event: E, /' if of_event else ''}) -> bool: ...")
    for action in machine.actions:
        out += ["", f"    def {action}(self, event: E, /) -> None: ..."]
    out += [
        "",
        "",
        "TABLE: Final[dict[State, dict[Event, tuple[Row, ...]]]] = {",
    ]
    for state, cells in machine.table.items():
        out.append(f"    {quoted(state)}: {{")
        for event, rows in cells.items():
            items = [
                f"Row({python_tuple(row.guards)}, {python_tuple(row.before)}, {quoted(row.to)}, "
                f"{python_tuple(row.actions)})"
                for row in rows
            ]
            body = ", ".join(items) + ("," if len(items) == 1 else "")
            out.append(f"        {quoted(event)}: ({body}),")
        out.append("    },")
    out += [
        "}",
        '"""Rows by state and event. No row fires: the event is ignored. No cell: a fault."""',
        "",
    ]
    return "\n".join(out)


def _literal(name: str, values: Iterable[str], doc: str) -> list[str]:
    return [
        f"{name}: TypeAlias = Literal[{', '.join(quoted(value) for value in values)}]",
        f'"""{doc}"""',
        "",
    ]


def errors(table: Errors) -> str:
    """The module `generated/errors.py`."""
    table = table.spelled(python_name)
    out = [
        header("#", "spec/errors.yaml"),
        '"""Every error code and close code, with what it means and what to do about it."""',
        "",
        "from __future__ import annotations",
        "",
        "from bisect import bisect_right",
        "from typing import Final, Literal, NamedTuple, TypeAlias",
        "",
        'CloseAction: TypeAlias = Literal["retry", "reauth", "stop"]',
        '"""What a client does: try again, try again with a new token, or end."""',
        "",
    ]
    out += _literal("WireCode", table.wire, "Codes that a server sends.")
    out += _literal("ClientCode", table.client, "Codes that only the SDK raises.")
    out += [
        "Code: TypeAlias = WireCode | ClientCode",
        '"""Every known code."""',
        "",
    ]
    out += _literal("ErrorName", table.names, "Names of the exception classes.")
    out += [
        "",
        f"PAGE: Final = {quoted(table.page)}",
        '"""Address of the page that describes the codes; each has an anchor."""',
        "",
        "",
        "class ErrorRecord(NamedTuple):",
        '    """One row of the error table."""',
        "",
        "    code: Code",
        "    meaning: str",
        "    remedy: str",
        "    retryable: bool",
        "    action: CloseAction",
        '    """What a connection that this ended does next."""',
        "    status: int | None",
        '    """HTTP status, where the code has one."""',
        "    close: int | None",
        '    """WebSocket close code, where the code has one."""',
        "    error: ErrorName",
        '    """Name of the exception class."""',
        '    scope: Literal["wire", "client"]',
        "",
        "",
        "CODES: Final[dict[str, ErrorRecord]] = {",
    ]
    for record in table.codes:
        out += [
            f"    {quoted(record.code)}: ErrorRecord(",
            f"        code={quoted(record.code)},",
            f"        meaning={quoted(record.meaning)},",
            f"        remedy={quoted(record.remedy)},",
            f"        retryable={record.retryable},",
            f"        action={quoted(record.action)},",
            f"        status={record.status},",
            f"        close={record.close},",
            f"        error={quoted(record.error)},",
            f"        scope={quoted(record.scope)},",
            "    ),",
        ]
    out += [
        "}",
        '"""Error records by code."""',
        "",
        "",
        "class CloseRange(NamedTuple):",
        '    """Close codes from `first` to `last`, both included, and what follows from them."""',
        "",
        "    first: int",
        "    last: int",
        "    action: CloseAction",
        "    meaning: str",
        "",
        "",
        "CLOSE_CODES: Final[tuple[CloseRange, ...]] = (",
    ]
    out += [
        f"    CloseRange({row.first}, {row.last}, {quoted(row.action)}, {quoted(row.meaning)}),"
        for row in table.closes
    ]
    out += [
        ")",
        '"""Ranges of close codes in ascending order; they cover 1000 to 4999 without a hole."""',
        "",
        "_FIRSTS: Final = tuple(row.first for row in CLOSE_CODES)",
        "",
        "",
        "def close_range(code: int | None) -> CloseRange:",
        '    """The row for a close code; none, or one outside 1000-4999, counts as 1006."""',
        f"    if code is None or not {table.closes[0].first} <= code <= {table.closes[-1].last}:",
        "        code = 1006",
        "    return CLOSE_CODES[bisect_right(_FIRSTS, code) - 1]",
        "",
        "",
        "def close_action(code: int | None) -> CloseAction:",
        '    """What a client does after its socket closed with this code."""',
        "    return close_range(code).action",
        "",
    ]
    return "\n".join(out)


def defaults(groups: tuple[Group, ...]) -> str:
    """The module `generated/defaults.py`."""
    out = [
        header("#", "spec/defaults.yaml"),
        '"""Every default of the SDKs and the limits of HIP-56. Milliseconds and bytes."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        "from typing import Final",
        "",
    ]
    for group in groups:
        out += [
            "",
            "@dataclass(frozen=True, slots=True)",
            f"class {group.title}:",
            f'    """{group.doc}."""',
            "",
        ]
        for constant in group.constants:
            out.append(f"    {constant.name}: int = {constant.value}")
            if constant.doc:
                out.append(f'    """{constant.doc}."""')
        out.append("")
    out.append("")
    out += [f"{group.name.upper()}: Final = {group.title}()" for group in groups]
    out.append("")
    return "\n".join(out)
