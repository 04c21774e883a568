"""The results of checks, and which of them is the cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: The check: `dns`, `tcp`, `tls`, `http`, `websocket`, `auth`, `sse`, `clock`, `token`,
            `access`, `payload`.
        status: Its outcome.
        message: The result in words.
        remedy: What to do about it; empty if nothing is to be done.
        code: The result for programs; stable.
        milliseconds: Duration of the check, if relevant.
    """

    name: str
    status: Status
    message: str
    remedy: str = ""
    code: str = ""
    milliseconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields that have a value."""
        found = {
            "name": self.name,
            "status": self.status.value,
            "message": self.message,
            "remedy": self.remedy,
            "code": self.code,
            "milliseconds": None if self.milliseconds is None else round(self.milliseconds, 1),
        }
        return {key: value for key, value in found.items() if value not in ("", None)}


def ok(name: str, message: str, milliseconds: float | None = None) -> Finding:
    """No problems found."""
    return Finding(name, Status.OK, message, milliseconds=milliseconds)


def warning(name: str, code: str, message: str, remedy: str) -> Finding:
    """It works, but not permanently or not well."""
    return Finding(name, Status.WARNING, message, remedy, code)


def failed(name: str, code: str, message: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name, Status.FAILED, message, remedy, code)


def skipped(name: str, message: str) -> Finding:
    """Skipped: there is nothing to check, or an earlier check has failed."""
    return Finding(name, Status.SKIPPED, message)


@dataclass(slots=True)
class Report:
    """All findings, in order."""

    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def cause(self) -> Finding | None:
        """The first failure; later ones may be consequences of it."""
        return next((f for f in self.findings if f.status is Status.FAILED), None)

    @property
    def healthy(self) -> bool:
        """Whether nothing failed."""
        return self.cause is None
