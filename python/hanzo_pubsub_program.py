"""Starts `hanzo-pubsub`, so that Ctrl-C ends it without a traceback from the first import on.

It lies outside of `hanzoai.pubsub`, because Python would import that package first.
"""

import os


def main() -> int:
    """Run the program, and return its exit code."""
    try:
        from hanzoai.pubsub.cli import interrupts

        interrupts.exit_silently()
        from hanzoai.pubsub.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        os._exit(130)
