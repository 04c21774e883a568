"""Reading documents whose shape is not known yet: YAML and JSON as `object`, narrowed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import yaml

if TYPE_CHECKING:
    from pathlib import Path


class DocumentError(ValueError):
    """A file cannot be read or parsed; the text says why, in one line, without the file's name."""


def read(file: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        DocumentError: It cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DocumentError("is not UTF-8 text") from None


def parse(text: str) -> object:
    """What a YAML or JSON text holds.

    Raises:
        DocumentError: It is neither.
    """
    try:
        return cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise DocumentError("is not YAML: " + " ".join(str(error).split())) from None


def mapping(value: object) -> dict[str, object] | None:
    """The value as a mapping with text keys, or None if it is no mapping."""
    if not isinstance(value, dict):
        return None
    return {str(key): item for key, item in cast("dict[object, object]", value).items()}


def sequence(value: object) -> list[object] | None:
    """The value as a list, or None if it is no list."""
    return list(cast("list[object]", value)) if isinstance(value, list) else None
