"""`python -m tests.simulation SEED` prints the events of a run; `… SEED TO` counts many runs."""

from __future__ import annotations

import sys

from tests.simulation.run import Run, simulate


def main() -> int:
    """Run the command line; return 0 if no check failed."""
    first = int(sys.argv[1])
    if len(sys.argv) == 2:
        run = Run(first, log=True)
        try:
            run.run()
        finally:
            print("\n".join(run.shell.lines or []))
        return 0
    bad = 0
    for seed in range(first, int(sys.argv[2])):
        try:
            simulate(seed)
        except Exception as error:
            bad += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    print(f"{int(sys.argv[2]) - first} seeds, {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
