"""Client ids prove for which user they were issued."""

from __future__ import annotations

import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.shared.client_ids import ClientIds

ALICE = Identity(user_id="alice", name="Alice")
BOB = Identity(user_id="bob")


def test_only_the_identity_that_an_id_was_issued_to_may_use_it() -> None:
    ids = ClientIds("secret")
    issued = ids.issue(ALICE)
    assert ids.vouches(issued, ALICE)
    assert ids.vouches(issued, Identity(user_id="alice", name="Another name"))
    assert not ids.vouches(issued, BOB)
    assert not ids.vouches(issued, Identity(user_id="alice", kind="service"))


def test_every_node_with_the_secret_recognizes_an_id_and_no_other_does() -> None:
    issued = ClientIds("secret").issue(ALICE)
    assert ClientIds("secret").vouches(issued, ALICE)
    assert not ClientIds("another secret").vouches(issued, ALICE)


@pytest.mark.parametrize("made_up", ["", "cl_", "cl_abc", "rest_alice", "cl_" + "0" * 40, "é" * 30])
def test_an_id_that_was_never_issued_is_not_recognized(made_up: str) -> None:
    assert not ClientIds("secret").vouches(made_up, ALICE)


def test_each_id_is_different() -> None:
    ids = ClientIds("secret")
    assert len({ids.issue(ALICE) for _ in range(100)}) == 100
