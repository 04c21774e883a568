"""Writes the pages about errors and the lifecycle."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from spec._generate.text import both_names

if TYPE_CHECKING:
    from spec._generate.defaults import Group
    from spec._generate.errors import Errors, Record
    from spec._generate.lifecycle import Lifecycle, Row

_DOCS = re.compile(r"https://pubsub\.hanzo\.ai/docs/([\w-]+)/")
"""The address of a page, which an error shows and a page replaces by a link."""

_DURATIONS = {
    "fetch": ["fetch_timeout"],
    "open": ["open_timeout"],
    "ping": ["ping_interval"],
    "pong": ["pong_timeout"],
    "retry": ["retry_base", "retry_cap"],
    "refresh": ["refresh_margin"],
    "expiry": [],
    "stable": ["stable_after"],
    "suspend": ["suspend_after"],
    "fallback": ["fallback_after"],
    "upgrade": ["upgrade_after"],
    "drain": ["close_timeout"],
}


def errors(table: Errors) -> str:
    """The page `docs/errors.md`."""
    table = table.spelled(both_names)
    out = [
        header("spec/errors.yaml"),
        "",
        "# Errors",
        "",
        "Every error in both SDKs has a `code`, `message`, `remedy` and `retryable`. A code that",
        "is not in this table comes from a newer server; the SDK passes it on unchanged.",
        "",
        "If the server states when to try again, the time is `retry_after_ms` on the wire,",
        "`retry_after` in seconds in Python, and `retryAfter` in milliseconds in TypeScript.",
        "",
        "Each code is followed by its class, and each meaning by its remedy (→). *retry?* shows",
        "whether the same operation can succeed if you repeat it unchanged. *client* shows what",
        "the client does if the error ended its connection: `retry` reconnects with backoff,",
        "`reauth` reconnects with a new token and stops if it cannot get one, `stop` ends the",
        "client.",
        "",
        "## From the server",
        "",
        "The server sends these in an `error` or `auth.error` frame, as a WebSocket close code, or",
        "as `application/problem+json`. The numbers below a code are the HTTP status and the close",
        "code.",
        "",
        "| code | meaning | retry? | client |",
        "|---|---|---|---|",
    ]
    for record in table.codes:
        if record.scope == "wire":
            cells = [
                *_code_and_meaning(record),
                "yes" if record.retryable else "no",
                record.action,
            ]
            out.append(f"| {' | '.join(cells)} |")
    out += [
        "",
        "## From the SDK",
        "",
        "The client raises these itself.",
        "",
        "| code | meaning | retry? | client |",
        "|---|---|---|---|",
    ]
    for record in table.codes:
        if record.scope == "client":
            cells = [
                *_code_and_meaning(record),
                "yes" if record.retryable else "no",
                record.action,
            ]
            out.append(f"| {' | '.join(cells)} |")
    out += [
        "",
        "## Close codes",
        "",
        "This table shows what the client does when the WebSocket closes. A connection that is",
        "lost without a code counts as 1006.",
        "",
        "| codes | connection | meaning |",
        "|---|---|---|",
    ]
    for row in table.closes:
        codes = f"{row.first}" if row.first == row.last else f"{row.first}-{row.last}"
        out.append(f"| {codes} | {row.action} | {row.meaning} |")
    return "\n".join([*out, ""])


def _code_and_meaning(record: Record) -> tuple[str, str]:
    """The first two cells of an error: code, class and numbers, then meaning and remedy."""
    remedy = _DOCS.sub(r"[\1](\1.md)", record.remedy)
    numbers = ", ".join(str(number) for number in (record.status, record.close) if number)
    code = "<br>".join(filter(None, (f"`{record.code}`", f"`{record.error}`", numbers)))
    return (
        f'<a id="{record.code}"></a>{code}',
        f"{record.meaning}<br>→ {remedy}",
    )


def lifecycle(machine: Lifecycle, groups: tuple[Group, ...], prose: str) -> str:
    """The page `docs/lifecycle.md`: handwritten text, then the diagram and the table."""
    values = {constant.name: constant.value for group in groups for constant in group.constants}
    out = [
        header("spec/lifecycle.yaml and spec/lifecycle.md"),
        "",
        prose.strip(),
        "",
        "## States",
        "",
        "| state | public state | meaning |",
        "|---|---|---|",
        *(
            f"| `{state}` | `{machine.public[state]}` | {machine.means[state]} |"
            for state in machine.states
        ),
        "",
        "## Diagram",
        "",
        "The transitions between states and their events. The rows below list the guards. `abort`",
        "leads from every state to `closed`.",
        "",
        "```mermaid",
        *_diagram(machine),
        "```",
        "",
        "## Timers",
        "",
        "| timer | event | default (ms) |",
        "|---|---|---|",
    ]
    for timer, event in machine.timers.items():
        named = ", ".join(f"`{name}` {values[name]:,}" for name in _DURATIONS[timer])
        out.append(f"| `{timer}` | `{event}` | {named or 'the expiry of the token'} |")
    out += ["", "## Guards", "", "| guard | holds if |", "|---|---|"]
    out += [f"| `{name}` | {guard.means} |" for name, guard in machine.asks.items()]
    out += ["", "## Rows", ""]
    out += [
        "The first row whose guards all hold applies. Its steps run in order; those in parentheses",
        "run before the change of state is reported.",
        "",
    ]
    for state in machine.states:
        cells = machine.table[state]
        if not any(cells.values()):
            continue
        out += [
            f"### {state}",
            "",
            f"{machine.means[state][:1].upper()}{machine.means[state][1:]}.",
            "",
            "| event | if | to | steps |",
            "|---|---|---|---|",
        ]
        for event, rows in cells.items():
            out += [_row(state, event, row) for row in rows]
        ignored = [f"`{event}`" for event, rows in cells.items() if not rows]
        if ignored:
            out += ["", f"Ignored: {', '.join(ignored)}."]
        out.append("")
    return "\n".join(out)


def _row(state: str, event: str, row: Row) -> str:
    guards = " and ".join(f"`{guard}`" for guard in row.guards)
    to = "stays" if row.to == state else f"`{row.to}`"
    steps = [*(f"(`{step}`)" for step in row.before), *(f"`{step}`" for step in row.actions)]
    return f"| `{event}` | {guards} | {to} | {', '.join(steps)} |"


def _diagram(machine: Lifecycle) -> list[str]:
    ways: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for state, event, row in machine.rows():
        if row.to != state and event != "abort":
            ways[state, row.to].append(event)
    return [
        "stateDiagram-v2",
        f"    [*] --> {machine.initial}",
        *(
            f"    {a} --> {b}: {', '.join(dict.fromkeys(events))}"
            for (a, b), events in ways.items()
        ),
        *(f"    {state} --> [*]" for state in machine.final),
    ]


def header(source: str) -> str:
    """The first line of a generated page."""
    return f"<!-- Generated from {source} by `make generate`; do not edit. -->"
