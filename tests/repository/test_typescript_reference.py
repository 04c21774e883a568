"""The generated TypeScript reference agrees with the sources."""

from __future__ import annotations

from scripts.typescript_reference import page
from scripts.typescript_sources import declared, members_of


def test_a_value_that_may_be_absent_is_marked() -> None:
    text = page("typescript-client")
    assert "| `sender?` | `Sender` |" in text
    assert "| `clientId` | `string \\| undefined` |" in text
    assert "| `maxPayload?` | `number` |" in page("typescript-tools")
    assert "| `topic` | `string` | The topic, without wildcards. |" in text


def test_fields_with_a_value_and_those_of_a_constructor_are_members() -> None:
    topic = {each.name: each for each in members_of(declared("signed/topic.ts")["SignedTopic"])}
    assert (topic["forged"].text, topic["forged"].is_method) == ("number", False)
    assert "new HanzoChatTransport(options: HanzoChatTransportOptions)" in page(
        "typescript-streams"
    )
    [name] = [
        each for each in members_of(declared("topic.ts")["TopicHandle"]) if each.name == "name"
    ]
    assert (name.text, name.is_method) == ("Topic", False)
