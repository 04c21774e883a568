"""`python examples/chat` or `python -m examples.chat`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from examples.chat.main import main

if __name__ == "__main__":
    sys.exit(main())
