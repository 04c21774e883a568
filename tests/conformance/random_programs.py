"""Random programs: valid and invalid calls of a few clients, cut connections and restarts.

A program is a list of steps as in scenarios. `rotate` lets the token of a client expire, and the
steps of an `outage` run while no WebSocket gets through. A value
`{"$first": "id"}` stands for that of the first message of the history that was read last.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = dict[str, Any]
TOPICS: Final = ("demo.a", "demo.b", "demo.c.x", "demo.c.y")
PATTERNS: Final = ("demo.*", "demo.**", "demo.c.*", "demo.*.x", "demo.a", "demo.b", "demo.c.x")
DENIED: Final = ("org.other.x", "user.bob.inbox")
USERS: Final = ("alice", "alice", "service", "root")
MODES: Final = ("events", "events", "handlers", "presence", "acting", "take")
CLOSE_CODES: Final = (1000, 1001, 1011, 1012, 1013, 4000, 4001, 4003, 4008, 4009, 4029)
DATA: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 100, 2**53, 2**53 - 1, -(2**53), 2**63 - 1024, -(2**63)),
    *(1e300, 1e-7, 5e-324, 0.1, 123456789.123456789),
    *("", "a", "é", "\U0001f600", "\u2028\u2029", "\0\1\x7f", "\\u0041", "</script>", "\ufeffbom"),
    *([], {}, [[]], {"": ""}, {"a": {"b": [1, {"c": None}]}}, {"__proto__": 1}, {"toString": 2}),
    *({"1": 1, "0": 0, "b": 2, "a": 3}, {"type": "x", "data": 1}, {"message": 1}, ["x" * 3000]),
    *({"é\U0001f600": 1}, [None] * 5, {"k" * 500: 1}, {"$nested": 50}, {"$nested": 100}),
)
BAD_DATA: Final[tuple[Any, ...]] = (
    *({"$number": "nan"}, {"$number": "infinity"}, "\ud800", {"\ud800": 1}, [["\udfff"]], 2**64),
    *({"a": {"b": "\ud83d"}}, {"$function": True}, "x" * 300_000, {"$nested": 101}),
)
PRESENCE: Final[tuple[Any, ...]] = (
    *({"status": "typing"}, {"name": "Al", "x": 1}, {"x": None}, {}, {"status": None}),
    *({"deep": {"a": [1]}}, {"status": "x" * 65}, {"name": "x" * 257}, {"status": 5}),
    *({"big": "x" * 20_000}, {"x": {"$number": "nan"}}, {"x": "\ud800"}, {"metadata": {"a": 1}}),
)
PIECES: Final[tuple[Any, ...]] = (
    *("Hello ", "world", "é", "\U0001f600", "", {"type": "reasoning", "text": "hm"}, "\ud800"),
    *({"type": "image", "url": "http://x"}, {"type": "tool_call", "id": "t", "name": "f"}),
)
BEHAVIOURS: Final[tuple[Json, ...]] = (
    *({}, {}, {"fails": True}, {"gives": None}, {"gives": {"$number": "nan"}}),
    *({"gives": "\ud800"}, {"reply_error": {"message": "no", "code": "nope"}}),
)


class _Generator:
    """Writes one program; a seed always gives the same."""

    def __init__(self, seed: int) -> None:
        self.steps: list[Json] = []
        self._random = random.Random(seed)
        self._clients: list[str] = []
        self._asking: list[str] = []
        self._subs: list[tuple[str, str]] = []
        self._takers: list[str] = []
        self._responders: list[str] = []
        self._readers = 0
        self._count = 0
        self._leaves = False
        self._weights: dict[Callable[[], None], int] = {
            self._client: 5,
            self._connect: 3,
            self._subscribe: 14,
            self._publish: 20,
            self._publish_each: 4,
            self._publish_many: 8,
            self._history: 6,
            self._older: 5,
            self._presence: 4,
            self._update_presence: 6,
            self._topics: 2,
            self._on_subscription: 8,
            self._reopen: 5,
            self._reopen_client: 3,
            self._close: 2,
            self._info: 2,
            self._network: 6,
            self._outage: 4,
            self._rotate: 2,
            self._request: 4,
            self._respond: 4,
            self._write: 5,
            self._read_stream: 4,
            self._on_topic: 3,
        }

    def generate(self, count: int) -> list[Json]:
        for begin in (self._client, self._client, self._subscribe, self._subscribe):
            begin()
        kinds, weights = list(self._weights), list(self._weights.values())
        while len(self.steps) < count:
            self._random.choices(kinds, weights)[0]()
        return self.steps

    def _do(self, do: str, by: str, **given: Any) -> None:
        self.steps.append({"do": do, "by": by, "with": given})

    def _sometimes(self, share: float) -> bool:
        return self._random.random() < share

    def _any(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _maybe(self, share: float, **choices: Any) -> Json:
        """Options, each of which is given with this probability."""
        return {
            name: self._any(values) for name, values in choices.items() if self._sometimes(share)
        }

    def _someone(self) -> str:
        return str(self._any(self._clients))

    def _topic(self) -> str:
        return str(self._any(DENIED if self._sometimes(0.05) else TOPICS))

    def _patterns(self) -> Any:
        if self._sometimes(0.6):
            return self._any(PATTERNS)
        found = self._random.choices(PATTERNS, k=self._random.randint(1, 3))
        return [*found, self._any(DENIED)] if self._sometimes(0.2) else found

    def _data(self) -> Any:
        if self._sometimes(0.5):
            self._count += 1
            return {"n": self._count}
        return self._any(DATA)

    def _message(self) -> Json:
        return {
            "data": self._any(BAD_DATA) if self._sometimes(0.05) else self._data(),
            **self._maybe(0.3, type=["token", "a", "message", "x" * 128, "é", "presence.update"]),
            **self._maybe(
                0.12,
                ttl=[0, 60, 10**9],
                id=["id1", "id2", "id3", "é", "x" * 128],
                meta=[{}, {"a": 1}, {"a": {"b": None}}, {"x": "y" * 100}],
            ),
        }

    # ---------------------------------------------------------------- clients

    def _client(self, name: str | None = None) -> None:
        if name is None and len(self._clients) > 2:
            return
        options = self._maybe(
            0.2,
            echo=[False],
            max_payload=[50, 1000, 300_000],
            history_page=[1, 2, 3, 500],
            transport=["sse", "auto"],
            get_token=["ask"],
        ) | self._maybe(
            0.1,
            receive_queue=[{"messages": n, "policy": p} for n in (1, 3) for p in ("gap", "error")],
            send_queue=[{"messages": 1, "policy": p} for p in ("error", "block", "drop_oldest")],
        )
        self._leaves |= options.get("transport") == "auto"
        name = name or f"c{len(self._clients)}"
        self.steps.append({"client": name, "as": self._any(USERS), "options": options})
        if name not in self._clients:
            self._clients.append(name)
        self._asking = [one for one in self._asking if one != name]
        if "get_token" in options:
            self._asking.append(name)

    def _connect(self) -> None:
        self._do("connect", self._someone())

    def _close(self) -> None:
        self._do("close", self._someone())

    def _reopen_client(self) -> None:
        name = self._someone()
        self._do("close", name)
        self._subs = [(sub, by) for sub, by in self._subs if by != name]
        self._takers = [sub for sub in self._takers if sub in dict(self._subs)]
        if self._sometimes(0.3):
            self._do("connect", name)
        self._client(name)
        self._do("connect", name)

    def _info(self) -> None:
        self._do("info", self._someone())

    def _rotate(self) -> None:
        if self._asking:
            self.steps.append({"rotate": self._any(self._asking)})

    def _network(self) -> None:
        self.steps.append(
            self._any(
                (
                    {"wire": "cut"},
                    {"wire": "cut"},
                    {"wire": "close", "code": self._any(CLOSE_CODES)},
                    {"server": "restart"},
                )
            )
        )

    def _outage(self) -> None:
        """Calls that wait until the clients are connected again."""
        if self._leaves:
            return  # one that changes its transport meanwhile
        steps, self.steps = self.steps, []
        clients, self._clients = self._clients, [self._someone()]  # whose calls keep their order
        for _ in range(self._random.randint(1, 3)):
            self._any((self._publish, self._publish, self._publish_each, self._on_subscription))()
        # What is not stored is lost if it arrives before the subscriber does. The order of
        # publishes in the background or over HTTP depends on the time.
        for step in self.steps:
            for given in (step["with"], step["with"].get("message", {})):
                for name in ("ttl", "background", "via"):
                    given.pop(name, None)
        self.steps, self._clients = [*steps, {"outage": self.steps}], clients

    # ---------------------------------------------------------------- subscriptions

    def _subscribe(self, sub: str | None = None, by: str | None = None) -> None:
        name, client = sub or f"s{len(self.steps)}", by or self._someone()
        mode = self._any(MODES)
        given = self._maybe(
            0.2,
            history=[0, 1, 2, 5, 100, 10_000],
            since=[0, {"$now": -60_000}, {"$now": 60_000}],
            after=[{self._topic(): n} for n in (0, 1, 5, 1000)],
            types=[["message"], ["token"], ["a", "b"]],
            presence=[True, False, {"status": "typing"}, {"x": 1, "name": "Al"}],
        ) | self._maybe(0.1, queue=[{"messages": n, "policy": "gap"} for n in (1, 2, 3)])
        if mode == "acting":
            given["handler"] = {
                "at": {"n": self._count + self._random.randint(1, 3)},
                "do": self._any(("fail", "unsubscribe", "close", "publish")),
                "by": self._someone(),
            }
        topics = self._patterns()
        if "*" in str(topics) and isinstance(given.get("presence"), dict):
            del given["presence"]
        self._do("subscribe", client, sub=name, topics=topics, mode=mode, **given)
        if (name, client) not in self._subs:
            self._subs.append((name, client))
        if name in self._takers:
            self._takers.remove(name)
        if mode == "take":
            self._takers.append(name)

    def _reopen(self) -> None:
        if self._subs:
            sub, by = self._any(self._subs)
            self._do("unsubscribe", sub)
            self._subscribe(sub, by)

    def _on_subscription(self) -> None:
        if self._subs:
            sub, _ = self._any(self._subs)
            self._do(self._any(("unsubscribe", "positions", "stats", "active")), sub)
        if self._takers:
            self._do("take", self._any(self._takers), count=self._random.randint(1, 3))

    # ---------------------------------------------------------------- messages and presence

    def _publish(self) -> None:
        more = self._maybe(0.1, ttl=[0, 60], id=["id1", "id2", "id3"], key=["k"])
        more |= self._maybe(0.1, via=["auto", "rest"], background=[True])
        self._do("publish", self._someone(), topic=self._topic(), message=self._message(), **more)

    def _publish_each(self) -> None:
        count = self._random.randint(2, 8)
        data = [{"n": self._count + n} for n in range(1, count + 1)]
        self._count += count
        self._do("publish_each", self._someone(), topic=self._any(TOPICS), data=data)

    def _publish_many(self) -> None:
        messages: list[Any] = []
        for _ in range(self._random.randint(1, 4)):
            topic, message = self._topic(), self._message()
            messages.append(
                {**message, "topic": topic} if self._sometimes(0.5) else [topic, message]
            )
        more = self._maybe(0.15, via=["auto", "rest"])
        self._do("publish_many", self._someone(), messages=messages, **more)

    def _history(self) -> None:
        more = self._maybe(
            0.2, limit=[1, 2, 5, 100, 1000], after=[0, 1, 3, 100], before=["id1", "id2", "nope"]
        ) | self._maybe(0.2, since=[0, {"$now": -60_000}, {"$now": 60_000}])
        self._do("history", self._someone(), topic=self._topic(), **more)

    def _older(self) -> None:
        """Read the newest messages of a topic, then those before or after the first of them."""
        name, topic, limit = self._someone(), self._any(TOPICS), self._any((1, 2, 5))
        self._do("history", name, topic=topic, limit=limit)
        end = self._any(({"before": {"$first": "id"}}, {"before": {"$first": "seq"}}))
        self._do("history", name, topic=topic, limit=limit, **end)
        if self._sometimes(0.5):
            self._do("history", name, topic=topic, after={"$first": "seq"})

    def _presence(self) -> None:
        self._do(self._any(("presence", "occupancy")), self._someone(), topic=self._topic())

    def _update_presence(self) -> None:
        topic = self._maybe(0.8, topic=[self._topic()])
        self._do("update_presence", self._someone(), data=self._any(PRESENCE), **topic)

    def _topics(self) -> None:
        more = self._maybe(0.5, prefix=["demo", "demo.c", "x", ""], limit=[1, 2, 1000])
        self._do("topics", self._someone(), **more)

    def _on_topic(self) -> None:
        call, args = self._any(
            (
                ("publish", [self._message()]),
                ("update_presence", [{"status": "away"}]),
                *((call, []) for call in ("history", "presence", "occupancy")),
            )
        )
        self._do("topic", self._someone(), topic=self._topic(), call=call, args=args)

    # ---------------------------------------------------------------- requests and streams

    def _request(self) -> None:
        more = self._maybe(
            0.15,
            id=["rid1", "rid2", "x" * 125, "x" * 126],
            reply_to=["demo.a.replies.me", "demo.b", "org.other.x", "user.alice.replies"],
            type=["request", "ask"],
        )
        given = {"topic": self._topic(), "data": self._data(), "timeout": 400, **more}
        self._do("request", self._someone(), **given)

    def _respond(self) -> None:
        if self._responders and self._sometimes(0.2):
            self._do("close_responder", self._responders.pop())
            return
        name = f"r{len(self.steps)}"
        behaviour = self._any(BEHAVIOURS)
        self._do("respond", self._someone(), sub=name, topics=self._patterns(), behaviour=behaviour)
        self._responders.append(name)

    def _write(self) -> None:
        pieces = self._random.choices(PIECES, k=self._random.randint(0, 4))
        end = self._any(({}, {"finish_reason": "length"}, {"usage": {"a": 1}}, {"abort": "why"}))
        more = self._maybe(0.5, id=["st1", "st2"]) | self._maybe(
            0.2, epoch=[0, 1, 2], meta=[{"model": "m"}]
        )
        given = {"topic": self._topic(), "pieces": pieces, "end": end, **more}
        self._do("write", self._someone(), **given)

    def _read_stream(self) -> None:
        self._readers += 1
        more = self._maybe(0.4, id=["st1", "st2", "latest", "next"])
        name = f"t{self._readers}"
        self._do("read_stream", self._someone(), sub=name, topic=self._any(TOPICS), **more)


def program(seed: int, count: int = 24) -> list[Json]:
    """Return the steps of a program.

    Args:
        seed: A seed always gives the same program.
        count: Least number of steps.
    """
    return _Generator(seed).generate(count)
