"""The exit codes of child processes, in words."""

from __future__ import annotations

import signal


def exit_reason(code: int) -> str:
    """`exit code 1`, or the name of the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL:
        return (
            "SIGKILL (if nothing else sends it, the memory was used up: raise the memory limit of"
            " the service)"
        )
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
