"""`hanzo-pubsub doctor`: checks every layer between a program and the server, in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hanzoai.pubsub.cli.arguments import Parser, connection_arguments, usage_error
from hanzoai.pubsub.cli.doctor.examination import Patient, examine
from hanzoai.pubsub.cli.doctor.findings import Finding, Report, Status
from hanzoai.pubsub.cli.exits import LOCAL, Exit
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.session import run, server_urls, token_source
from hanzoai.pubsub.errors import AuthRefused, InvalidOption
from hanzoai.pubsub.settings.urls import endpoints
from hanzoai.pubsub.topics import validate_pattern

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

PATIENCE = 5.0
"""Seconds for each check."""
_MARKS = {
    Status.OK: ("✓", "green"),
    Status.WARNING: ("!", "yellow"),
    Status.FAILED: ("✗", "bold red"),
    Status.SKIPPED: ("\N{EN DASH}", "dim"),
}


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    output = Output(as_json=args.json)
    return run(output, args, lambda: _examine(args, output))


def build_parser() -> Parser:
    """The arguments of `hanzo-pubsub doctor`."""
    parser = Parser(
        "doctor",
        "Check every layer in order: DNS, TCP, TLS, HTTP, WebSocket, authentication, server-sent"
        " events, clock, token, access and payload size. Then print the first cause."
        " The command publishes nothing. It exits with 0 if no check fails, otherwise with 1.",
        exits=LOCAL,
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="check the access to this topic or pattern; can be repeated",
    )
    parser.add_argument(
        "--wait-keepalive",
        action="store_true",
        help="also wait up to 20s for the next comment of the event stream",
    )
    connection_arguments(parser, timeout="timeout of each check [default: 5s]")
    return parser


async def _examine(args: Namespace, output: Output) -> int:
    try:
        found = endpoints(*server_urls(args))
    except InvalidOption as error:
        usage_error(error.message, remedy=error.remedy)
    token_problem, token = None, None
    try:
        token = token_source(args, output)()
    except AuthRefused as error:
        token_problem = error
    patient = Patient(
        endpoints=found,
        token=token,
        token_problem=token_problem,
        topics=tuple(validate_pattern(topic) for topic in args.topic),
        patience=args.timeout or PATIENCE,
        wait_keepalive=args.wait_keepalive,
        allow_insecure=args.allow_insecure,
    )
    report = Report()
    async for finding in examine(patient):
        report.findings.append(finding)
        if output.pretty:
            _print(output, finding)
        await asyncio.sleep(0)
    _conclude(output, report, patient)
    return Exit.OK if report.healthy else Exit.FAILED


def _print(output: Output, finding: Finding) -> None:
    mark, style = _MARKS[finding.status]
    took = "" if finding.milliseconds is None else f" ({finding.milliseconds:.0f} ms)"
    faint = "dim" if finding.status is Status.SKIPPED else ""
    head = [(f"{mark} ", style), (f"{finding.name:<10}", "bold")]
    output.item(head, (finding.message, faint), (took, "dim"))
    if finding.remedy and finding.status is not Status.SKIPPED:
        output.item([" " * 12, ("→ ", style)], finding.remedy)


def _conclude(output: Output, report: Report, patient: Patient) -> None:
    cause = report.cause
    if not output.pretty:
        output.record(
            {
                "healthy": report.healthy,
                "cause": None if cause is None else cause.to_json(),
                "checks": [finding.to_json() for finding in report.findings],
                "url": patient.endpoints.socket,
                "rest_url": patient.endpoints.http,
            }
        )
        return
    output.line("")
    if cause is None:
        warnings = sum(finding.status is Status.WARNING for finding in report.findings)
        ending = "" if not warnings else f" {warnings} warning{'s' * (warnings > 1)} above."
        output.line(("No problems found.", "bold green"), ending)
        return
    output.item([("First cause: ", "bold red")], (cause.message, "bold"))
    if cause.remedy:
        output.item([("What to do:  ", "bold")], cause.remedy)
