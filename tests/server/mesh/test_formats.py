"""Nodes of two versions share a mesh: the format of its frames changes only with its version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.codec import FrameDecoder, Member, Record
from pubsub_server.backplanes.mesh.peering import Peering, Terms, Welcomed

RECORDED: Final = Path(__file__).parent / "formats" / f"mesh_{codec.VERSION}.txt"
"""What a node of this version sends, as a name and hexadecimal digits on each line."""
CHANGED: Final = (
    "A node sends other bytes to nodes of a mesh than it did. If nodes of the previous release"
    " can read them, copy {written} to tests/server/mesh/formats. Otherwise, also raise VERSION in"
    " codec.py and add `Upgrading` to CHANGELOG.md."
)
NAMES: Final = [b"demo.a", b"demo.b"]
MEMBERS: Final = [Member("node-a", "10.0.0.1:8060"), Member("node-b", ":8060")]
RECORDS: Final = (
    Record("demo.a", "one", given=True, type="t", data=b"1", kind="user", user="u", timestamp=7),
    Record(
        "demo.b", "two", False, "t", b'"\xc3\xbc"', "service", "s", 1_796_016_588_101, 60, b"{}"
    ),
)
LOW: Final = Terms("node-a", "s1", "10.0.0.1:8060", b"k" * 32, 10.0, 2.0, 1_000)
HIGH: Final = replace(LOW, node="node-b", start="s2", address=":8060")


def greeting() -> tuple[dict[str, bytes], Peering, Peering]:
    """What two nodes with a shared key send to each other, until they use their connection."""
    dialer = Peering(LOW, b"1" * 16, dialed=True, now=0.0)
    listener = Peering(HIGH, b"2" * 16, dialed=False, now=0.0)
    sent = {
        "dialer's hello": dialer.output(),
        "listener's hello": listener.output(),
    }
    list(listener.received(sent["dialer's hello"], 0.0))
    list(dialer.received(sent["listener's hello"], 0.0))
    sent |= {"dialer's proof": dialer.output(), "listener's proof": listener.output()}
    list(listener.received(sent["dialer's proof"], 0.0))
    list(dialer.received(sent["listener's proof"], 0.0))
    dialer.accept(missed=True)
    sent["welcome"] = dialer.output()
    return sent, dialer, listener


def sent_frames() -> dict[str, bytes]:
    frames, _, _ = greeting()
    names = codec.topic_list(NAMES)
    return frames | {
        "members": codec.members(MEMBERS),
        "subscribe": codec.frame(codec.SUBSCRIBE, names),
        "unsubscribe": codec.frame(codec.UNSUBSCRIBE, names),
        "patterns": codec.frame(codec.PATTERNS, names),
        "patterns end": codec.frame(codec.PATTERNS_END, names),
        "forward": codec.forward(NAMES, b"data"),
        **{f"record {each.id}": codec.record(each) for each in RECORDS},
        "leaving": codec.frame(codec.LEAVING),
    }


def recorded() -> dict[str, bytes]:
    lines = RECORDED.read_text(encoding="ascii").splitlines() if RECORDED.exists() else []
    return {name: bytes.fromhex(digits) for name, _, digits in (x.rpartition(" ") for x in lines)}


def test_a_node_sends_the_recorded_frames_to_other_nodes(tmp_path: Path) -> None:
    frames = sent_frames()
    here = tmp_path / RECORDED.name
    here.write_text("".join(f"{name} {data.hex()}\n" for name, data in frames.items()), "ascii")
    assert frames == recorded(), CHANGED.format(written=here)


def test_a_node_reads_the_recorded_frames_of_another_node() -> None:
    found = recorded()
    decoder = FrameDecoder(1_000, trusted=True)
    (members, *others) = decoder.feed(
        b"".join(found[name] for name in ("members", "forward", "record one", "record two"))
    )
    assert codec.read_members(members.body) == MEMBERS
    assert codec.read_forward(others[0].body) == (NAMES, b"data")
    assert tuple(codec.read_record(each.body) for each in others[1:]) == RECORDS
    lists = ("subscribe", "unsubscribe", "patterns", "patterns end")
    for each in decoder.feed(b"".join(found[name] for name in lists)):
        assert codec.read_topic_list(each.body) == NAMES


@pytest.mark.parametrize("role", ["dialer", "listener"])
def test_a_node_greets_a_node_that_sends_the_recorded_frames(role: str) -> None:
    other = "listener" if role == "dialer" else "dialer"
    _, dialer, listener = greeting()
    node = Peering(
        *((LOW, b"1" * 16) if role == "dialer" else (HIGH, b"2" * 16)),
        dialed=role == "dialer",
        now=0.0,
    )
    found = recorded()
    list(node.received(found[f"{other}'s hello"] + found[f"{other}'s proof"], 0.0))
    assert node.hello == (dialer if role == "dialer" else listener).hello
    if role == "listener":
        assert list(node.received(found["welcome"], 0.0)) == [Welcomed(plain=False, missed=True)]
