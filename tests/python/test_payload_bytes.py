from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.payload_bytes import (
    DEPTH_MAX,
    bytes_of,
    to_bytes,
    to_json,
    value_of,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
documents = values.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")))
payloads = (
    st.binary(max_size=60)
    | documents.map(lambda text: text.encode(errors="replace"))
    | st.text(alphabet='{}[]":,$base64 \\u0e+-1', max_size=40).map(str.encode)
    | st.binary(max_size=12).map(lambda data: b'{"$base64":"' + data + b'"}')
)


@given(payloads)
def test_bytes_become_json_and_the_same_bytes_again(data: bytes) -> None:
    encoded = to_json(data)
    assert to_bytes(encoded) == data
    assert json.loads(encoded) == value_of(data)
    assert bytes_of(value_of(data)) == data


@given(values)
def test_an_object_or_array_leaves_as_compact_json_and_comes_back(value: Any) -> None:
    try:
        data = bytes_of(value)
    except UnicodeEncodeError:
        return
    if isinstance(value, dict | list) and not (isinstance(value, dict) and "$base64" in value):
        assert value_of(data) == value
        assert to_json(data) == data
        assert to_bytes(data) == data


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"n":1}', {"n": 1}),
        (b"[]", []),
        (b"{}", {}),
        (b"", ""),
        (b"text", "text"),
        (b"17", "17"),
        (b"null", "null"),
        (b'"quoted"', '"quoted"'),
        (b'{"n": 1}', '{"n": 1}'),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}'),
        (b'{"a":1', '{"a":1'),
        (b"[NaN]", "[NaN]"),
        (b"[1e400]", "[1e400]"),
        (b"[1.50]", "[1.50]"),
        (b'["\\ud800"]', '["\\ud800"]'),
        (b'["\\u00e9"]', '["\\u00e9"]'),
        (b'{"$base64":"aGk="}', '{"$base64":"aGk="}'),
        (b'{"$base64":1}', {"$base64": 1}),
        (b'{"$base64":"?"}', {"$base64": "?"}),
        (b'{"$base64":"AAAA===="}', {"$base64": "AAAA===="}),
        (b'{"$base64":"AA==AA=="}', {"$base64": "AA==AA=="}),
        (b'{"$base64":"A==="}', {"$base64": "A==="}),
        (b'{"$base64":"AAA"}', {"$base64": "AAA"}),
        (b'{"$base64":"AAA=A==="}', {"$base64": "AAA=A==="}),
        (b"\xff\x00", {"$base64": "/wA="}),
        (b"\xef\xbb\xbf{}", "\ufeff{}"),
    ],
)
def test_bytes_have_a_json_representation(data: bytes, value: Any) -> None:
    assert value_of(data) == value
    assert bytes_of(value) == data


def test_json_that_some_parsers_find_too_deep_is_text() -> None:
    deep = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert isinstance(value_of(deep), list)
    deeper = b"[" + deep + b"]"
    assert value_of(deeper) == deeper.decode()
    brackets = b'["' + b"[" * 1000 + b'\\"{"]'
    assert isinstance(value_of(brackets), list)
    assert value_of(b"[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], "\ud800"])
def test_invalid_json_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        bytes_of(value)
    with pytest.raises(TypeError):
        bytes_of(object())
