"""Finds the call that converts a value to plain JSON: the remedy of `InvalidPayload`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from uuid import UUID


def hint_for(value: object) -> str | None:
    """Return the call that converts a value to JSON; None for a type without a usual one.

    Recognizes types of other packages by name: an error imports nothing.
    """
    module = type(value).__module__.partition(".")[0]
    return _of_the_library(value) or _of_a_package(value, module) or _by_method(value)


def _of_the_library(value: object) -> str | None:
    match value:
        case set() | frozenset():
            return "Send a list: sorted(value), or list(value)."
        case bytes() | bytearray() | memoryview():
            return "Send base64 text: base64.b64encode(value).decode()."
        case Enum():
            return "Send value.value, or value.name."
        case Decimal():
            return "Send str(value), which keeps every digit, or float(value)."
        case UUID() | PurePath():
            return "Send str(value)."
        case timedelta():
            return "Send value.total_seconds()."
        case complex():
            return "Send [value.real, value.imag]."
        case Mapping():
            return "Send dict(value)."
        case Iterator():
            return "Send list(value)."
        case type():
            return "Send an instance: the value is the class itself."
        case _ if dataclasses.is_dataclass(value):
            return "Send dataclasses.asdict(value)."
        case _:
            return None


def _of_a_package(value: object, module: str) -> str | None:
    match module:
        case "numpy" if hasattr(value, "ndim") and getattr(value, "ndim", 0) == 0:
            return "Send value.item()."
        case "numpy":
            return "Send value.tolist()."
        case "pandas" if hasattr(value, "columns"):
            return 'Send value.to_dict("records").'
        case "torch" | "tensorflow" | "jax" | "jaxlib" if hasattr(value, "tolist"):
            return "Send value.tolist()."
        case "polars" if hasattr(value, "to_dicts"):
            return "Send value.to_dicts()."
        case _ if hasattr(value, "__struct_fields__"):
            return "Send msgspec.to_builtins(value)."
        case _ if hasattr(type(value), "__attrs_attrs__"):
            return "Send attrs.asdict(value)."
        case _:
            return None


def _by_method(value: object) -> str | None:
    if hasattr(value, "model_dump"):
        return 'Send value.model_dump(mode="json").'
    if hasattr(value, "isoformat"):
        return "Send value.isoformat(), or Unix milliseconds."
    if hasattr(value, "tolist"):
        return "Send value.tolist()."
    if callable(value):
        return "Call it, and send the result."
    return None
