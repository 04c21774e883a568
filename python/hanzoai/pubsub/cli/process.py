"""The process of a program: its standard streams, and how it ends if one of them fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hanzoai.pubsub.cli import interrupts, stdio
from hanzoai.pubsub.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run(
    arguments: Sequence[str], program: Callable[[Sequence[str]], int], *, streams: bool = True
) -> int:
    """Run a program, and return its exit code.

    Args:
        arguments: What `program` is called with.
        program: May raise `KeyboardInterrupt`, and the exceptions of writing to standard output.
        streams: Whether to replace the standard streams first, see `stdio.prepare`.
    """
    try:
        try:
            if streams:
                stdio.prepare(without_output=_is_server(arguments))
            code = program(arguments)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        # At its exit, the interpreter would print a traceback if this fails.
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        stdio.discard_output()
        return Exit.OK
    except stdio.OutputError as error:
        stdio.discard_output()
        _report(error, as_json="--json" in arguments)
        return Exit.FAILED
    except KeyboardInterrupt:
        stdio.discard_output()
        return Exit.INTERRUPTED
    finally:
        if streams:
            interrupts.exit_silently()


def _is_server(arguments: Sequence[str]) -> bool:
    """Whether it runs the server, which also works without standard output."""
    return arguments[:1] == ["serve"] and not {"--check-config", "-h", "--help"} & {*arguments}


def _report(error: stdio.OutputError, *, as_json: bool) -> None:
    from hanzoai.pubsub.cli.output import Output

    Output(as_json=as_json).note("error", str(error), style="red", code="failed")
