"""Values of the wire are frozen, open to unknown fields, and show no secret."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from hanzoai.pubsub.generated import wire

if TYPE_CHECKING:
    from hanzoai.pubsub.model import Model

ENVELOPE = wire.Message(id="1", topic="a", type="t", data=None, timestamp=1)
NULL_PAYLOADS = [ENVELOPE, wire.Publication(topic="a", data=None), wire.PublishRequest(data=None)]


@pytest.mark.parametrize("value", NULL_PAYLOADS, ids=lambda value: type(value).__name__)
def test_a_null_payload_is_written(value: Model) -> None:
    assert value.wire()["data"] is None
    assert json.loads(value.model_dump_json(exclude_none=True))["data"] is None


def test_a_null_payload_is_written_inside_a_frame_too() -> None:
    frame = wire.MessageFrame(message=ENVELOPE)
    assert frame.wire()["message"]["data"] is None


def test_a_payload_that_is_excluded_stays_away() -> None:
    full = wire.Publication(topic="a", data={"x": 1})
    assert full.model_dump(exclude={"data"}, exclude_none=True) == {"topic": "a", "type": "message"}


def test_null_in_an_optional_field_reads_as_absent_and_is_not_written() -> None:
    frame = wire.PongFrame.model_validate({"type": "pong", "server_time": None})
    assert frame.wire() == {"type": "pong"}


def test_none_inside_a_payload_is_kept() -> None:
    frame = wire.PresenceUpdateFrame(data={"status": None})
    assert frame.wire() == {"type": "presence.update", "data": {"status": None}}


def test_unknown_fields_are_kept_and_written_out_again() -> None:
    frame = wire.PongFrame.model_validate({"type": "pong", "load": 0.5})
    assert frame.wire() == {"type": "pong", "load": 0.5}


def test_a_frame_cannot_be_changed() -> None:
    frame = wire.PingFrame()
    with pytest.raises(ValidationError, match="frozen"):
        frame.ref = "1"  # type: ignore[misc]


def test_repr_shows_neither_token_nor_payload_nor_unknown_fields() -> None:
    secret = "s3cret"
    shown = repr(
        [
            wire.AuthFrame(token=secret),
            wire.Publication(topic="a", data={"x": secret}, meta={"y": secret}),
            wire.PresenceUpdateFrame(data={"x": secret}),
            wire.PongFrame.model_validate({"type": "pong", "note": secret}),
            wire.MessageFrame(
                message=wire.Message(id="1", topic="a", type="t", data=secret, timestamp=1)
            ),
        ]
    )
    assert secret not in shown
    assert "topic='a'" in shown


def test_the_repr_of_a_message_shows_how_its_data_begins() -> None:
    def shown(data: object) -> str:
        envelope = wire.Message(id="1", topic="a", type="t", data=data, meta={"m": 7}, timestamp=1)
        assert str(envelope) == repr(envelope)
        return repr(envelope)

    assert shown("hi") == ("Message(id='1', topic='a', type='t', data='hi', timestamp=1, meta=...)")
    assert "data=None" in shown(None)
    long = shown({"text": "x" * 500})
    assert "data={'text': 'xxx" in long
    assert "xxx…, timestamp=1" in long
    assert len(long) < 150


def test_messages_inside_of_other_values_show_no_payload() -> None:
    envelope = wire.Message(id="1", topic="a", type="t", data="s3cret", timestamp=1)
    page = wire.HistoryPage(messages=[envelope], has_more=False)
    assert "s3cret" not in repr(page)
    assert "Message(id='1', topic='a'" in repr(page)


def test_a_validation_error_shows_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        wire.AuthFrame.model_validate({"type": "auth", "token": ["s3cret"]})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["1", True, 1.5, [1]])
def test_a_number_is_never_read_from_something_else(wrong: object) -> None:
    with pytest.raises(ValidationError):
        wire.PongFrame.model_validate({"type": "pong", "server_time": wrong})


@pytest.mark.parametrize(
    "model", [wire.Message, wire.Publication, wire.PresenceMember, wire.TopicInfo]
)
def test_help_on_a_class_describes_each_field(model: type[Model]) -> None:
    about = inspect.getdoc(model)
    assert about is not None
    for name in model.model_fields:
        assert f"\n    {name}: " in about
