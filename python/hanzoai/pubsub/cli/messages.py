"""Formats messages, gaps and members: as JSON, and as one line of text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.cli.output import Part, encode

if TYPE_CHECKING:
    from hanzoai.pubsub.values import Gap, Message, PresenceChange, PresenceMember


def to_json(message: Message) -> dict[str, Any]:
    """The envelope of HIP-56; absent fields stay absent."""
    found: dict[str, Any] = message.model_dump(mode="json", exclude_none=True)
    # `data` may be null, and is required.
    return found | {"data": message.data}


def parts(message: Message) -> list[Part]:
    """A line of text: time, topic, type, data."""
    data = message.data if isinstance(message.data, str) else encode(message.data)
    return [
        (_clock(message.timestamp), "dim"),
        " ",
        (message.topic, "cyan"),
        " ",
        (message.type, "green"),
        " ",
        data,
    ]


def gap_to_json(gap: Gap) -> dict[str, Any]:
    """The fields of a gap, for standard error."""
    return {
        "topic": gap.topic,
        "from": gap.from_,
        "to": gap.to,
        "missed": gap.missed,
        "reason": gap.reason,
    }


def describe_gap(gap: Gap) -> str:
    """A gap in words."""
    missed = "an unknown number of" if gap.missed is None else f"{gap.missed:,}"
    return f"{missed} messages of {gap.topic} were missed ({gap.reason})"


def presence_to_json(change: PresenceChange) -> dict[str, Any]:
    """A presence change; its `event` distinguishes it from messages."""
    return {
        "event": "presence",
        "topic": change.topic,
        "change": change.change,
        "members": [member_to_json(member) for member in change.members],
    }


def member_to_json(member: PresenceMember) -> dict[str, Any]:
    """A member as in HIP-56."""
    found: dict[str, Any] = member.model_dump(mode="json", exclude_none=True)
    return found


def member_row(member: PresenceMember) -> list[Part]:
    """A row of a table of members."""
    return [
        (member.name, "bold"),
        member.status or "online",
        member.user_id,
        _clock(member.joined_at),
        (encode(member.metadata) if member.metadata else "", "dim"),
    ]


MEMBER_COLUMNS = ("name", "status", "user", "joined", "metadata")


def _clock(unix_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(unix_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(unix_ms)
    return at.strftime("%H:%M:%S.") + f"{unix_ms % 1000:03}"
