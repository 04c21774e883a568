"""`python -m hanzoai.pubsub.cli` is `hanzo-pubsub`."""

from __future__ import annotations

import sys

from hanzoai.pubsub.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
