"""What another node wants stays recorded while the node reconnects."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pubsub_server.backplanes.mesh.remotes import Remote, Remotes

if TYPE_CHECKING:
    from pubsub_server.backplanes.mesh.link import Link

LINK = cast("Link", object())


def test_a_node_that_requests_its_topics_in_several_frames_loses_none_meanwhile() -> None:
    remotes = Remotes(10)
    remote = Remote("a", "start", "", plain=False)
    remotes.connect(remote, LINK, 2)
    assert remotes.wants(remote, ["one", "two", "three"], 2)
    remotes.disconnect(remote, 5, for_good=False)
    remotes.connect(remote, LINK, 12)
    assert remotes.wants(remote, ["one"], 13)
    remotes.expire(12.5)
    assert remotes.table.of(remote) == ["one", "two", "three"]
    assert remotes.wants(remote, ["two"], 14)
    remotes.expire(14)
    assert remotes.table.of(remote) == ["one", "two"]


def test_topics_that_are_new_keep_none_that_a_node_has_not_requested_again() -> None:
    remotes = Remotes(10)
    remote = Remote("a", "start", "", plain=False)
    remotes.connect(remote, LINK, 2)
    assert remotes.wants(remote, ["one", "two"], 2)
    remotes.disconnect(remote, 5, for_good=False)
    remotes.connect(remote, LINK, 12)
    assert remotes.wants(remote, ["one"], 13)
    assert remotes.wants(remote, ["three"], 15)
    remotes.expire(13)
    assert remotes.table.of(remote) == ["one", "three"]
