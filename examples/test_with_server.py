"""Test your program against the real server. `pubsub_server` is a fixture of this package.

pip install 'hanzoai.pubsub[server]' pytest
pytest examples/test_with_server.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub import PubSub

if TYPE_CHECKING:
    from hanzoai.pubsub.testing import ThreadedServer


def greet(ps: PubSub, name: str) -> None:
    """The program under test."""
    ps.publish("demo.greetings", {"type": "greeting", "data": {"text": f"Hello {name}"}})


def test_a_greeting_is_published(pubsub_server: ThreadedServer) -> None:
    with PubSub(pubsub_server.ws, pubsub_server.token(), rest_url=pubsub_server.http) as ps:
        greet(ps, "Ada")
        greetings = [message.data["text"] for message in ps.history("demo.greetings")]
    assert greetings == ["Hello Ada"]
