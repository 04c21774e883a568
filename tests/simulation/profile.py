"""The parameters of a run: abilities of the server, faults of the network, options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanzoai.pubsub.settings.session import SessionOptions

if TYPE_CHECKING:
    from tests.simulation.prng import Random

TOPICS = ("a.1", "a.2", "b.1", "b.2.x")
PATTERNS = ("a.1", "a.2", "b.1", "a.*", "**", "b.**", "*.1")
SECRET = "secret.1"
PEOPLE = ("p1", "p2", "p3")
"""Other members, who join and leave."""

OWN = "c"
"""The client id of the session."""

FEATURES = ["ref", "ack", "seq", "idempotency", "batch", "resume", "meta"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Drawn from the seed in the order of the fields; probabilities are in thousandths."""

    plain: bool
    idempotent: bool
    batch: bool
    retained: int
    skew: int
    rate: int
    token_life: int
    warns: bool
    short_ttl: int
    resets: int
    cuts: int
    refuses_dial: int
    black_hole: int
    freezes: int
    doubles: int
    loses_live: int
    later_answers: int
    in_parts: int
    refuses_now: int
    limits_rate: int
    callback_fails: int
    callback_hangs: int
    websocket_blocked: bool
    tells_reset_of_nothing: bool
    people: int
    denies_now: int
    acks: bool
    options: SessionOptions


def draw_profile(random: Random) -> Profile:
    """Draw the profile of a seed."""
    plain = random.chance(200)
    rough = random.chance(500)
    return Profile(
        plain=plain,
        idempotent=random.chance(800),
        batch=random.chance(800),
        retained=100 if plain else random.pick((3, 10, 40, 100)),
        skew=random.pick((0, 5, 40, 2_400) if plain else (0, 0, 5, 40)),
        rate=random.pick((0, 0, 5, 50)),
        token_life=random.pick((0, 8_000, 30_000, 90_000)),
        warns=random.chance(600),
        short_ttl=random.pick((0, 0, 100)),
        resets=random.pick((0, 0, 15)),
        cuts=random.pick((10, 30, 100)) if rough else 10,
        refuses_dial=random.pick((0, 100, 500)) if rough else 0,
        black_hole=random.pick((0, 100)) if rough else 0,
        freezes=random.pick((0, 10)) if rough else 0,
        doubles=random.pick((0, 50)),
        loses_live=0 if plain else random.pick((0, 20, 100)),
        later_answers=random.pick((0, 500)),
        in_parts=random.pick((0, 300)),
        refuses_now=random.pick((0, 50)),
        limits_rate=random.pick((0, 0, 100)),
        callback_fails=random.pick((0, 200)),
        callback_hangs=random.pick((0, 50)),
        websocket_blocked=random.chance(100),
        tells_reset_of_nothing=random.chance(500),
        people=random.pick((0, 900)),
        denies_now=random.pick((0, 0, 100)),
        acks=random.chance(900),
        options=SessionOptions(
            client_name="simulation",
            client_lang=None,
            renewable=True,
            transport=random.pick(("auto", "auto", "websocket")),
            held_messages=random.pick((3, 10_000)),
            send_queue_messages=random.pick((5, 1_000)),
            send_queue_bytes=random.pick((600, 1_000_000)),
            retry_base=500,
            retry_cap=4_000,
            upgrade_after=20_000,
            suspend_after=10_000,
        ),
    )
