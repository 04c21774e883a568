"""Writes the lists of files in docs/inside/modules.md: each file with the first line of its text.

Edit the docstring of a module, or the first comment of a TypeScript file, to change its entry.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMMENT: Final = re.compile(r"/\*\*(.*?)\*/", re.DOTALL)
STAR: Final = re.compile(r"^\s*\* ?", re.MULTILINE)
SKIPPED: Final = {"generated", "__pycache__"}


def python_summary(file: Path) -> str:
    """Return the first line of the docstring of a module.

    Raises:
        ValueError: The module has no docstring.
    """
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"{file.relative_to(ROOT)} has no docstring")
    return text.splitlines()[0]


def typescript_summary(file: Path) -> str:
    """Return the first paragraph of the first comment of a file.

    Raises:
        ValueError: The file has no comment.
    """
    found = COMMENT.search(file.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{file.relative_to(ROOT)} has no comment that says what it is for")
    return " ".join(STAR.sub("", found[1]).strip().split("\n\n")[0].split())


def summary(file: Path) -> str:
    """Return what a file is for, as a cell: no vertical bar that would end it, and no full stop."""
    text = python_summary(file) if file.suffix == ".py" else typescript_summary(file)
    return text.replace("|", "\\|").rstrip().removesuffix(".")


def files(folder: Path) -> list[Path]:
    """Return the files of a folder and those below it that people edit."""
    found = (path for path in folder.rglob("*") if path.suffix in {".py", ".ts", ".tsx"})
    kept = (path for path in found if not SKIPPED & set(path.relative_to(folder).parts))
    return sorted(kept, key=lambda path: (path.parent.relative_to(folder).parts, path.name))


def lists(root: str) -> str:
    """Return one table for each folder below a folder of the repository, itself included."""
    top = ROOT / root
    lines: list[str] = []
    for folder, group in groupby(files(top), key=lambda file: file.parent):
        name = root if folder == top else folder.relative_to(top).as_posix()
        lines += ["", f"### `{name}/`", ""]
        package = folder / "__init__.py"
        if package.is_file() and folder != top:
            lines += [python_summary(package), ""]
        rows = [f"| `{file.name}` | {summary(file)} |" for file in group if file != package]
        if rows:
            lines += ["| file | purpose |", "|---|---|", *rows]
    return "\n".join([*lines[1:], ""])
