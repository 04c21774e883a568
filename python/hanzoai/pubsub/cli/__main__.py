"""`python -m hanzoai.pubsub.cli` is `hanzo-pubsub`."""

from __future__ import annotations

import sys

from hanzo_pubsub_program import main

if __name__ == "__main__":
    sys.exit(main())
