# Generated from spec/lifecycle.yaml by `make generate`; do not edit.
"""The life of a session as a table, and the steps a session must know to follow it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

State: TypeAlias = Literal[
    "initialized",
    "resolving",
    "dialing",
    "authenticating",
    "connected",
    "waiting",
    "suspended",
    "closing",
    "closed",
    "failed",
]
"""The state of a session in the table of transitions."""

PublicState: TypeAlias = Literal[
    "initialized",
    "connecting",
    "authenticating",
    "connected",
    "reconnecting",
    "suspended",
    "closing",
    "closed",
    "failed",
]
"""The state of a session that users see."""

Event: TypeAlias = Literal[
    "connect",
    "close",
    "abort",
    "token",
    "token_failed",
    "opened",
    "dropped",
    "probed",
    "answered",
    "woke",
    "offline",
    "auth.ok",
    "auth.error",
    "auth.expiring",
    "pong",
    "drained",
    "called",
    "fetch_timeout",
    "open_timeout",
    "ping_due",
    "pong_timeout",
    "retry_due",
    "refresh_due",
    "token_expired",
    "stable_due",
    "suspend_due",
    "fallback_due",
    "upgrade_due",
    "drain_timeout",
]
"""What may happen to a session."""

Timer: TypeAlias = Literal[
    "fetch",
    "open",
    "ping",
    "pong",
    "retry",
    "refresh",
    "expiry",
    "stable",
    "suspend",
    "fallback",
    "upgrade",
    "drain",
]
"""The timers of a session."""

Guard: TypeAlias = Literal[
    "auth_fault",
    "data_arrived",
    "draining",
    "final_error",
    "first_replaced",
    "has_pings",
    "has_token",
    "overdue",
    "reachable",
    "refused",
    "should_fall_back",
    "token_fresh",
    "unsettled",
]
"""Questions that a row asks."""

Action: TypeAlias = Literal[
    "accept",
    "check",
    "count_failure",
    "dial",
    "fail",
    "fetch_token",
    "finish",
    "flush",
    "forget_token",
    "keep_token",
    "leave",
    "note_replaced",
    "note_stable",
    "plan_now",
    "plan_retry",
    "probe",
    "probe_http",
    "rejoin",
    "renew",
    "reset_retry",
    "schedule_refetch",
    "send_auth",
    "send_ping",
    "start_drain",
    "start_fallback",
    "start_suspend",
]
"""Steps that a row takes."""

PartAction: TypeAlias = Literal[
    "attempts.schedule",
    "attempts.shorten",
    "choice.change",
    "choice.start_upgrade",
    "choice.upgrade",
    "credentials.abandon",
]
"""Steps of a part: its name, its method."""

TimerStep: TypeAlias = Literal["+ping", "+pong", "+stable", "-ping", "-pong", "-retry"]
"""Steps that start or stop a timer."""

INITIAL: Final[State] = "initialized"
FINAL: Final[frozenset[State]] = frozenset({"closed", "failed"})
PUBLIC: Final[dict[State, PublicState]] = {
    "initialized": "initialized",
    "resolving": "connecting",
    "dialing": "connecting",
    "authenticating": "authenticating",
    "connected": "connected",
    "waiting": "reconnecting",
    "suspended": "suspended",
    "closing": "closing",
    "closed": "closed",
    "failed": "failed",
}
TIMERS: Final[dict[Timer, Event]] = {
    "fetch": "fetch_timeout",
    "open": "open_timeout",
    "ping": "ping_due",
    "pong": "pong_timeout",
    "retry": "retry_due",
    "refresh": "refresh_due",
    "expiry": "token_expired",
    "stable": "stable_due",
    "suspend": "suspend_due",
    "fallback": "fallback_due",
    "upgrade": "upgrade_due",
    "drain": "drain_timeout",
}


class Row(NamedTuple):
    """One way out of a state on an event; the first row whose guards all hold fires.

    The steps of `before` run before the change of state is reported.
    """

    guards: tuple[Guard, ...]
    before: tuple[Action, ...]
    to: State
    actions: tuple[Action | PartAction | TimerStep, ...]


E = TypeVar("E", contravariant=True)


class Steps(Protocol[E]):
    """Guards and actions of the table; `E` is what a session calls an event."""

    def auth_fault(self, event: E, /) -> bool: ...

    def data_arrived(self, event: E, /) -> bool: ...

    @property
    def draining(self) -> bool: ...

    def final_error(self, event: E, /) -> bool: ...

    def first_replaced(self, event: E, /) -> bool: ...

    @property
    def has_pings(self) -> bool: ...

    @property
    def has_token(self) -> bool: ...

    @property
    def overdue(self) -> bool: ...

    def reachable(self, event: E, /) -> bool: ...

    def refused(self, event: E, /) -> bool: ...

    @property
    def should_fall_back(self) -> bool: ...

    def token_fresh(self, event: E, /) -> bool: ...

    @property
    def unsettled(self) -> bool: ...

    def accept(self, event: E, /) -> None: ...

    def check(self, event: E, /) -> None: ...

    def count_failure(self, event: E, /) -> None: ...

    def dial(self, event: E, /) -> None: ...

    def fail(self, event: E, /) -> None: ...

    def fetch_token(self, event: E, /) -> None: ...

    def finish(self, event: E, /) -> None: ...

    def flush(self, event: E, /) -> None: ...

    def forget_token(self, event: E, /) -> None: ...

    def keep_token(self, event: E, /) -> None: ...

    def leave(self, event: E, /) -> None: ...

    def note_replaced(self, event: E, /) -> None: ...

    def note_stable(self, event: E, /) -> None: ...

    def plan_now(self, event: E, /) -> None: ...

    def plan_retry(self, event: E, /) -> None: ...

    def probe(self, event: E, /) -> None: ...

    def probe_http(self, event: E, /) -> None: ...

    def rejoin(self, event: E, /) -> None: ...

    def renew(self, event: E, /) -> None: ...

    def reset_retry(self, event: E, /) -> None: ...

    def schedule_refetch(self, event: E, /) -> None: ...

    def send_auth(self, event: E, /) -> None: ...

    def send_ping(self, event: E, /) -> None: ...

    def start_drain(self, event: E, /) -> None: ...

    def start_fallback(self, event: E, /) -> None: ...

    def start_suspend(self, event: E, /) -> None: ...


TABLE: Final[dict[State, dict[Event, tuple[Row, ...]]]] = {
    "initialized": {
        "connect": (Row((), (), "resolving", ("start_suspend", "start_fallback", "fetch_token")),),
        "close": (Row((), (), "closed", ("finish",)),),
        "abort": (Row((), (), "closed", ("finish",)),),
        "woke": (),
        "offline": (),
        "called": (),
    },
    "resolving": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "resolving", ("start_drain",)),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "dialing", ("keep_token", "dial")),),
        "token_failed": (
            Row(("refused",), (), "failed", ("fail",)),
            Row(("overdue",), ("plan_retry",), "suspended", ("attempts.schedule",)),
            Row((), ("plan_retry",), "waiting", ("attempts.schedule",)),
        ),
        "opened": (),
        "dropped": (),
        "probed": (),
        "answered": (Row(("should_fall_back",), (), "resolving", ("choice.change",)),),
        "woke": (),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (),
        "fetch_timeout": (
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("credentials.abandon", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("credentials.abandon", "attempts.schedule")),
        ),
        "suspend_due": (),
        "fallback_due": (Row(("should_fall_back",), (), "resolving", ("choice.change",)),),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "dialing": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "dialing", ("start_drain",)),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "dialing", ("keep_token",)),),
        "token_failed": (Row(("refused",), (), "failed", ("fail",)),),
        "opened": (
            Row(("has_token",), (), "authenticating", ("send_auth",)),
            Row(("overdue",), ("plan_retry",), "suspended", ("leave", "attempts.schedule")),
            Row((), ("plan_retry",), "waiting", ("leave", "attempts.schedule")),
        ),
        "dropped": (
            Row(("final_error",), (), "failed", ("fail",)),
            Row(
                ("auth_fault", "overdue"),
                ("plan_retry",),
                "suspended",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("auth_fault",),
                ("plan_retry",),
                "waiting",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("leave", "count_failure", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "probed": (),
        "answered": (
            Row(("should_fall_back",), (), "dialing", ("leave", "choice.change", "dial")),
        ),
        "woke": (),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (),
        "fetch_timeout": (Row((), (), "dialing", ("credentials.abandon",)),),
        "open_timeout": (
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("leave", "count_failure", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "token_expired": (Row((), (), "dialing", ("forget_token",)),),
        "suspend_due": (),
        "fallback_due": (
            Row(("should_fall_back",), (), "dialing", ("leave", "choice.change", "dial")),
            Row((), (), "dialing", ("probe_http",)),
        ),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "authenticating": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "authenticating", ("start_drain",)),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "authenticating", ("keep_token",)),),
        "token_failed": (Row(("refused",), (), "failed", ("fail",)),),
        "opened": (),
        "dropped": (
            Row(("final_error",), (), "failed", ("fail",)),
            Row(
                ("auth_fault", "overdue"),
                ("plan_retry",),
                "suspended",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("auth_fault",),
                ("plan_retry",),
                "waiting",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("leave", "count_failure", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "probed": (),
        "answered": (
            Row(("should_fall_back",), (), "dialing", ("leave", "choice.change", "dial")),
        ),
        "woke": (),
        "offline": (),
        "auth.ok": (
            Row(("draining",), (), "closing", ("accept", "flush")),
            Row(
                (),
                (),
                "connected",
                ("accept", "+stable", "+ping", "choice.start_upgrade", "rejoin", "flush"),
            ),
        ),
        "auth.error": (
            Row(("final_error",), (), "failed", ("fail",)),
            Row(
                ("auth_fault", "overdue"),
                ("plan_retry",),
                "suspended",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("auth_fault",),
                ("plan_retry",),
                "waiting",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("leave", "count_failure", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (),
        "fetch_timeout": (Row((), (), "authenticating", ("credentials.abandon",)),),
        "open_timeout": (
            Row(
                ("overdue",),
                ("plan_retry",),
                "suspended",
                ("leave", "count_failure", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "token_expired": (Row((), (), "authenticating", ("forget_token",)),),
        "suspend_due": (),
        "fallback_due": (
            Row(("should_fall_back",), (), "dialing", ("leave", "choice.change", "dial")),
            Row((), (), "authenticating", ("probe_http",)),
        ),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "connected": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "closing", ("start_drain", "-ping", "-pong")),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "connected", ("keep_token", "send_auth")),),
        "token_failed": (
            Row(("refused",), (), "failed", ("fail",)),
            Row((), (), "connected", ("schedule_refetch",)),
        ),
        "dropped": (
            Row(
                ("first_replaced",),
                ("plan_retry",),
                "waiting",
                ("leave", "note_replaced", "attempts.schedule"),
            ),
            Row(("final_error",), (), "failed", ("fail",)),
            Row(
                ("auth_fault",),
                ("plan_retry",),
                "waiting",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "count_failure", "attempts.schedule")),
        ),
        "probed": (
            Row(("reachable",), (), "dialing", ("leave", "choice.upgrade", "dial")),
            Row((), (), "connected", ("choice.start_upgrade",)),
        ),
        "answered": (),
        "woke": (Row((), ("plan_now",), "waiting", ("leave", "attempts.schedule")),),
        "offline": (Row(("has_pings",), (), "connected", ("-ping", "check")),),
        "auth.ok": (Row((), (), "connected", ("renew",)),),
        "auth.error": (
            Row(("final_error",), (), "failed", ("fail",)),
            Row(
                ("auth_fault",),
                ("plan_retry",),
                "waiting",
                ("leave", "forget_token", "attempts.schedule"),
            ),
            Row((), ("plan_retry",), "waiting", ("leave", "attempts.schedule")),
        ),
        "auth.expiring": (
            Row(("token_fresh",), (), "connected", ()),
            Row((), (), "connected", ("fetch_token",)),
        ),
        "pong": (Row((), (), "connected", ("-pong", "-ping", "+ping")),),
        "called": (),
        "fetch_timeout": (Row((), (), "connected", ("credentials.abandon", "schedule_refetch")),),
        "ping_due": (Row((), (), "connected", ("send_ping", "+pong")),),
        "pong_timeout": (
            Row(("data_arrived",), (), "connected", ("+ping",)),
            Row((), ("plan_retry",), "waiting", ("leave", "attempts.schedule")),
        ),
        "refresh_due": (Row((), (), "connected", ("fetch_token",)),),
        "token_expired": (Row((), (), "connected", ("forget_token", "fetch_token")),),
        "stable_due": (Row((), ("reset_retry",), "connected", ("note_stable",)),),
        "fallback_due": (),
        "upgrade_due": (Row((), (), "connected", ("probe",)),),
    },
    "waiting": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "waiting", ("start_drain",)),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "waiting", ("keep_token",)),),
        "token_failed": (Row(("refused",), (), "failed", ("fail",)),),
        "opened": (),
        "dropped": (),
        "probed": (),
        "answered": (Row(("should_fall_back",), (), "waiting", ("choice.change",)),),
        "woke": (
            Row(("has_token",), ("reset_retry",), "dialing", ("-retry", "dial")),
            Row((), ("reset_retry",), "resolving", ("-retry", "fetch_token")),
        ),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (
            Row(("has_token",), (), "dialing", ("-retry", "attempts.shorten", "dial")),
            Row((), (), "resolving", ("-retry", "attempts.shorten", "fetch_token")),
        ),
        "fetch_timeout": (Row((), (), "waiting", ("credentials.abandon",)),),
        "retry_due": (
            Row(("has_token",), (), "dialing", ("dial",)),
            Row((), (), "resolving", ("fetch_token",)),
        ),
        "token_expired": (Row((), (), "waiting", ("forget_token",)),),
        "suspend_due": (Row((), (), "suspended", ()),),
        "fallback_due": (Row(("should_fall_back",), (), "waiting", ("choice.change",)),),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "suspended": {
        "connect": (),
        "close": (
            Row(("unsettled",), (), "suspended", ("start_drain",)),
            Row((), (), "closed", ("finish",)),
        ),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (Row((), (), "suspended", ("keep_token",)),),
        "token_failed": (Row(("refused",), (), "failed", ("fail",)),),
        "opened": (),
        "dropped": (),
        "probed": (),
        "answered": (Row(("should_fall_back",), (), "suspended", ("choice.change",)),),
        "woke": (
            Row(("has_token",), ("reset_retry",), "dialing", ("-retry", "dial")),
            Row((), ("reset_retry",), "resolving", ("-retry", "fetch_token")),
        ),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (
            Row(("has_token",), (), "dialing", ("-retry", "attempts.shorten", "dial")),
            Row((), (), "resolving", ("-retry", "attempts.shorten", "fetch_token")),
        ),
        "fetch_timeout": (Row((), (), "suspended", ("credentials.abandon",)),),
        "retry_due": (
            Row(("has_token",), (), "dialing", ("dial",)),
            Row((), (), "resolving", ("fetch_token",)),
        ),
        "token_expired": (Row((), (), "suspended", ("forget_token",)),),
        "fallback_due": (Row(("should_fall_back",), (), "suspended", ("choice.change",)),),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "closing": {
        "connect": (),
        "close": (),
        "abort": (Row((), (), "closed", ("finish",)),),
        "token": (),
        "token_failed": (),
        "dropped": (Row((), (), "closed", ("finish",)),),
        "probed": (),
        "answered": (),
        "woke": (),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (Row((), (), "closed", ("finish",)),),
        "called": (),
        "fetch_timeout": (),
        "ping_due": (),
        "pong_timeout": (),
        "refresh_due": (),
        "token_expired": (),
        "stable_due": (),
        "suspend_due": (),
        "fallback_due": (),
        "upgrade_due": (),
        "drain_timeout": (Row((), (), "closed", ("finish",)),),
    },
    "closed": {
        "connect": (),
        "close": (),
        "abort": (),
        "token": (),
        "token_failed": (),
        "opened": (),
        "dropped": (),
        "probed": (),
        "answered": (),
        "woke": (),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (),
        "called": (),
        "fetch_timeout": (),
        "open_timeout": (),
        "ping_due": (),
        "pong_timeout": (),
        "retry_due": (),
        "refresh_due": (),
        "token_expired": (),
        "stable_due": (),
        "suspend_due": (),
        "fallback_due": (),
        "upgrade_due": (),
        "drain_timeout": (),
    },
    "failed": {
        "connect": (),
        "close": (),
        "abort": (),
        "token": (),
        "token_failed": (),
        "opened": (),
        "dropped": (),
        "probed": (),
        "answered": (),
        "woke": (),
        "offline": (),
        "auth.ok": (),
        "auth.error": (),
        "auth.expiring": (),
        "pong": (),
        "drained": (),
        "called": (),
        "fetch_timeout": (),
        "open_timeout": (),
        "ping_due": (),
        "pong_timeout": (),
        "retry_due": (),
        "refresh_due": (),
        "token_expired": (),
        "stable_due": (),
        "suspend_due": (),
        "fallback_due": (),
        "upgrade_due": (),
        "drain_timeout": (),
    },
}
"""Rows by state and event. No row fires: the event is ignored. No cell: a fault."""
