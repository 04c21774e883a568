"""The error for a payload that is not JSON names a call that converts it, and the call works."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import types
import uuid
from typing import Any

import msgspec
import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import pydantic
import pytest

from hanzoai.pubsub.errors import InvalidPayload
from hanzoai.pubsub.wire.payloads import check_data


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    amount: int = 5


class Struct(msgspec.Struct):
    amount: int = 5


class Model(pydantic.BaseModel):
    amount: int = 5


class Attrs:
    __attrs_attrs__ = ()


VALUES: list[tuple[object, str]] = [
    ({3, 1}, "sorted(value)"),
    (b"raw", "base64.b64encode(value).decode()"),
    (Color.RED, "value.value"),
    (decimal.Decimal("0.1"), "str(value)"),
    (uuid.UUID(int=1), "str(value)"),
    (pathlib.PurePosixPath("a"), "str(value)"),
    (datetime.timedelta(seconds=1.5), "value.total_seconds()"),
    (1 + 2j, "[value.real, value.imag]"),
    (types.MappingProxyType({"a": 1}), "dict(value)"),
    (iter([1]), "list(value)"),
    ((each for each in [1]), "list(value)"),
    (Order(), "dataclasses.asdict(value)"),
    (Struct(), "msgspec.to_builtins(value)"),
    (Model(), 'value.model_dump(mode="json")'),
    (np.int64(1), "value.item()"),
    (np.float32(0.5), "value.item()"),
    (np.arange(3), "value.tolist()"),
    (pd.DataFrame({"a": [1]}), 'value.to_dict("records")'),
    (collections.deque([1]), ""),
    (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "value.isoformat()"),
    (Attrs(), "attrs.asdict(value)"),
    (Order, "an instance"),
    (len, "Call it"),
    (object(), ""),
]


@pytest.mark.parametrize(
    ("value", "call"), VALUES, ids=[f"{type(value).__name__}-{call}" for value, call in VALUES]
)
def test_the_remedy_names_a_call_that_works(value: object, call: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_data({"list": [value]}, 10_000)
    assert caught.value.field == "data.list[0]"
    assert type(value).__name__ in caught.value.message
    assert call in caught.value.remedy
    if "value" in call:
        names: dict[str, Any] = {
            "value": value,
            "base64": base64,
            "dataclasses": dataclasses,
            "msgspec": msgspec,
        }
        if "attrs" not in call:
            assert check_data(eval(call, names), 10_000) > 0
