"""Writes the files that are generated from spec/: code, and tables and diagrams of the docs.

Usage: python spec/generate.py [--check]

With --check it writes nothing; if a file differs, it prints a unified diff and exits with 1. If the
inputs contradict themselves, it writes nothing and exits with 2.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes all that comes from spec/.")
    parser.add_argument("--check", action="store_true", help="write nothing, show what drifted")
    check: bool = parser.parse_args().check
    sys.path.insert(0, str(ROOT))
    from spec._generate.lifecycle import SpecError
    from spec._generate.outputs import outputs

    try:
        written = list(outputs(ROOT))
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    drifted = 0
    for path, text in written:
        name = str(path.relative_to(ROOT))
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == text:
            continue
        drifted += 1
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    current.splitlines(keepends=True),
                    text.splitlines(keepends=True),
                    f"{name} (as it is)",
                    f"{name} (as spec/ says)",
                )
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"written: {name}")
    if check and drifted:
        print(f"{drifted} generated files differ from spec/; run `make generate`", file=sys.stderr)
    return 1 if check and drifted else 0


if __name__ == "__main__":
    sys.exit(main())
