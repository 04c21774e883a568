"""What Ctrl-C does while the program starts and ends.

As an exception, it could come while Python imports a module, closes an event loop or shuts down,
where Python prints a traceback.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_CODE: Final = 130
"""`Exit.INTERRUPTED`, whose module imports too much for the first line of a program."""


def exit_silently() -> None:
    """Let Ctrl-C end the process at once, unless it is ignored or handled."""
    # On Windows, asyncio needs the exception.
    if os.name == "posix" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, for code that cleans up."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(_CODE)
