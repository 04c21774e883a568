"""Events and effects of a session as JSON, the form of `spec/traces/` and of simulation logs.

Fields that are None, and counters that are zero, are left out. A state change is `[from, to]`, a
delivery the id of the message, a member of a presence list its client id.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pydantic import TypeAdapter

from hanzoai.pubsub.generated.wire import Message, Publication, ServerFrame
from tests.traces import effects, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.traces.effects import Effect
    from tests.traces.events import Event, TimerName

Json: TypeAlias = Any

FRAMES: TypeAdapter[ServerFrame] = TypeAdapter(ServerFrame)

_READERS: dict[str, Callable[[Json, dict[str, Json]], Event]] = {
    "connect": lambda v, _: events.Connect(**v),
    "close": lambda v, _: events.Close(**v),
    "abort": lambda v, _: events.Abort(**v),
    "token": lambda v, _: events.Token(**v),
    "token_failed": lambda v, _: events.TokenFailed(**v),
    "opened": lambda v, _: events.Opened(**v),
    "dropped": lambda v, _: events.Dropped(**v),
    "probed": lambda v, _: events.Probed(**v),
    "answered": lambda v, _: events.Answered(**v),
    "woke": lambda v, _: events.Woke(**v),
    "offline": lambda v, _: events.Offline(**v),
    "frame": lambda v, step: events.Received(FRAMES.validate_python(v), step.get("at", 0)),
    "messages": lambda v, _: events.ReceivedMessages(tuple(map(Message.model_validate, v))),
    "timer": lambda v, step: events.TimerFired(cast("TimerName", v), step.get("idle", 0)),
    "subscribe": lambda v, _: replace(events.Subscribe(**v), topics=tuple(v["topics"])),
    "unsubscribe": lambda v, _: events.Unsubscribe(v),
    "publish": lambda v, _: _publish(v),
    "expire": lambda v, _: events.Expire(v),
    "update_presence": lambda v, _: events.UpdatePresence(v.get("topic"), v["data"], v["ref"]),
}


def read_event(step: dict[str, Json]) -> Event:
    """Return the event of a step: its first key is the name, `at` and `idle` may follow."""
    name = next(iter(step))
    return _READERS[name](step[name], step)


def show_effect(effect: Effect) -> dict[str, Json]:
    """Convert an effect to JSON."""
    match effect:
        case effects.StateChanged():
            more = _some(effect, "code", "reason", "retry_in")
            attempt = {"attempt": effect.attempt} if effect.attempt else {}
            return {"state": [effect.from_, effect.to], **more, **attempt}
        case effects.Fetch():
            return {"fetch": effect.id, "reason": effect.reason, "attempt": effect.attempt}
        case effects.AbandonFetch():
            return {"abandon_fetch": effect.id}
        case effects.Dial():
            return {"dial": effect.transport}
        case effects.HangUp():
            return {"hang_up": effect.code}
        case effects.Send():
            return {"send": effect.frame.wire()}
        case effects.StartTimer():
            return {"start": effect.name, "after": effect.after}
        case effects.CancelTimer():
            return {"cancel": effect.name}
        case effects.Probe():
            return {"probe": {}}
        case effects.ProbeHttp():
            return {"probe_http": effect.auth.wire()}
        case effects.Deliver():
            return {"deliver": effect.message.id, "sub": effect.sub}
        case effects.Gap():
            span = _some(effect, "from_", "to", "missed")
            return {"gap": effect.topic, "sub": effect.sub, **span, "reason": effect.reason}
        case effects.Joined():
            denied = {"denied": [d.wire() for d in effect.denied]} if effect.denied else {}
            return {"joined": list(effect.topics), "sub": effect.sub, **denied}
        case effects.PresenceChanged():
            who = {} if effect.member is None else {"member": effect.member.wire()}
            return {
                "presence": effect.topic,
                "sub": effect.sub,
                "members": [member.client_id for member in effect.members],
                "change": effect.change,
                **who,
            }
        case effects.Settle():
            return {"settle": effect.ref, **_outcome(effect.outcome)}
        case effects.Problem():
            return {"problem": effect.code, **_some(effect, "message", "topic")}
        case effects.Finished():
            return {"finished": None if effect.error is None else _rejected(effect.error)}


def canonical(value: Json) -> str:
    """Return one line of JSON with sorted keys: equal values give equal bytes in every language."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _publish(value: dict[str, Json]) -> events.Publish:
    messages = tuple(Publication.model_validate(message) for message in value["messages"])
    return replace(events.Publish(**value), messages=messages)


def _outcome(outcome: effects.Outcome) -> dict[str, Json]:
    match outcome:
        case effects.Acked():
            return {"acked": [result.wire() for result in outcome.results]}
        case effects.Rejected():
            return {"rejected": _rejected(outcome)}
        case effects.Unknown():
            return {"unknown": {}}


def _rejected(error: effects.Rejected) -> dict[str, Json]:
    found = {"code": error.code, **_some(error, "message", "remedy", "topic")}
    return found if error.retry_after_ms is None else found | {"retry_after": error.retry_after_ms}


def _some(value: object, *names: str) -> dict[str, Json]:
    found = {name.rstrip("_"): getattr(value, name) for name in names}
    return {name: one for name, one in found.items() if one is not None}
