"""Signed frames: the vectors of spec/signed.json, and cases without vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub import soc
from hanzoai.pubsub.errors import InvalidPayload, UsageError

SPEC: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "spec" / "signed.json").read_text(encoding="utf-8")
)
KEY = b"\1" * 32
ID = soc.keccak256(b"my-topic")
OWNER = soc.owner_of(KEY)
TOPIC = soc.topic_address(ID, OWNER)


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", SPEC[name], ids=[each["why"] for each in SPEC[name]])


def bytes_in(case: dict[str, Any], *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


@cases("signed")
def test_a_payload_is_addressed_and_signed_as_by_bee(case: dict[str, Any]) -> None:
    key, id, payload, owner, topic, cac, digest, frame = bytes_in(
        case, "key", "id", "payload", "owner", "topic", "cac", "digest", "frame"
    )
    assert soc.owner_of(key) == owner
    assert soc.topic_address(id, owner) == topic
    assert soc.cac_address(payload) == cac
    assert soc.digest(id, payload) == digest
    assert soc.sign(key, id, payload) == frame
    assert soc.verify(frame, id, topic) == (owner, payload)


@cases("accepted")
def test_every_signature_that_bee_accepts_is_accepted(case: dict[str, Any]) -> None:
    frame, id, topic, owner, payload = bytes_in(case, "frame", "id", "topic", "owner", "payload")
    assert soc.verify(frame, id, topic) == (owner, payload)


@cases("refused")
def test_a_frame_that_the_owner_has_not_signed_is_refused(case: dict[str, Any]) -> None:
    frame, id, topic = bytes_in(case, "frame", "id", "topic")
    with pytest.raises(InvalidPayload) as caught:
        soc.verify(frame, id, topic)
    assert caught.value.field == case["field"]
    assert caught.value.remedy


@cases("data")
def test_a_payload_travels_as_json_that_every_language_writes_alike(case: dict[str, Any]) -> None:
    (payload,) = bytes_in(case, "payload")
    frame = soc.sign(KEY, ID, payload)
    data = soc.to_data(frame, ID, OWNER)
    assert data["payload"] == case["json"]
    assert soc.from_data(json.loads(json.dumps(data))) == (OWNER, ID, frame)


@cases("bad_data")
def test_data_that_is_not_a_signed_message_is_rejected(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload) as caught:
        soc.from_data(case["data"])
    assert caught.value.field == case["field"]


def test_hex_is_read_in_upper_case_and_behind_0x() -> None:
    frame = soc.sign(KEY, ID, b"hello")
    data = soc.to_data(frame, ID, OWNER)
    loud = {**data, **{name: "0x" + data[name].upper() for name in ("owner", "id", "signature")}}
    assert soc.from_data(loud) == (OWNER, ID, frame)


@pytest.mark.parametrize("key", [bytes(32), b"\xff" * 32, b"", bytes(31)])
def test_a_malformed_private_key_is_rejected(key: bytes) -> None:
    for act in (soc.owner_of, partial(soc.sign, id=ID, payload=b"")):
        with pytest.raises(InvalidPayload, match="`key`") as caught:
            act(key)
        assert caught.value.field == "key"


def test_a_payload_of_more_than_4096_bytes_is_not_signed() -> None:
    with pytest.raises(InvalidPayload, match="at most 4,096 bytes, not 4,097") as caught:
        soc.sign(KEY, ID, bytes(4097))
    assert caught.value.field == "payload"


@pytest.mark.parametrize("v", [0, 1])
def test_the_recovery_id_of_a_wallet_becomes_that_of_a_frame(v: int) -> None:
    frame = next(each for n in range(99) if (each := soc.sign(KEY, ID, b"%d" % n))[64] == 27 + v)
    signature, payload = frame[:64] + bytes([v]), frame[soc.HEAD_BYTES :]
    assert soc.frame_of(signature, payload) == frame


@given(st.binary(max_size=4096), st.integers(0, 2**20), st.integers(1, 255))
def test_a_changed_byte_is_never_accepted(payload: bytes, at: int, change: int) -> None:
    frame = bytearray(soc.sign(KEY, ID, payload))
    at %= len(frame)
    frame[at] ^= change
    try:
        found = soc.verify(bytes(frame), ID, TOPIC)
    except InvalidPayload:
        return
    # v has two equivalent values: for an uncompressed and for a compressed key.
    assert at == 64
    assert found == (OWNER, payload)


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wallycore", None)
    monkeypatch.delitem(sys.modules, "hanzoai.pubsub.soc")
    with pytest.raises(UsageError, match=r"hanzoai\.pubsub\[signed\]") as caught:
        __import__("hanzoai.pubsub.soc")
    assert isinstance(caught.value, ImportError)


def test_a_program_that_turns_warnings_into_errors_ends_as_any_other() -> None:
    program = "from hanzoai.pubsub import soc; print(soc.owner_of(bytes(31) + bytes([1])).hex())"
    # Python drops this module at exit, in most programs too late to show the crash.
    drop = "import sys; del sys.modules['swig_runtime_data4']"
    for lines in (program, f"{program}; {drop}"):
        done = subprocess.run([sys.executable, "-W", "error", "-c", lines], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_only_the_extension_is_loaded_under_a_filter_of_warnings_that_all_threads_share() -> None:
    program = """
import sys, warnings

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in {"wallycore", "sha3"} and warnings.filters[0][0] == "ignore":
            print(name)

warnings.simplefilter("error")
sys.meta_path.insert(0, Finder())
from hanzoai.pubsub import soc
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
