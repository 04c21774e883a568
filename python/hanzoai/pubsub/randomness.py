"""Random numbers for waits, so that clients do not reconnect all at once.

The generator of the module `random` belongs to the program. Workers that call `random.seed(0)`
would all wait equally long, and each wait would change the program's own sequence. `SystemRandom`
has no state, so it also differs in forked processes and works in any thread.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Final

RANDOM: Final = SystemRandom()
