"""Write the versions installed in this environment as a constraints file."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

HEADER = "# Exact versions of everything `make setup` installs. Written by `make pins`.\n"
OURS = {"hanzoai-pubsub", "hanzoai-pubsub-server", "pip", "setuptools"}


def installed() -> dict[str, str]:
    """Return the versions of installed distributions except ours, by normalised name."""
    found = {d.name.lower().replace("_", "-").replace(".", "-"): d.version for d in distributions()}
    return {name: found[name] for name in sorted(found.keys() - OURS)}


def main(target: Path) -> int:
    versions = installed()
    lines = [f"{name}=={version}\n" for name, version in versions.items()]
    target.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{target}: {len(versions)} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
