"""The Python SDK behind a protocol of JSON lines; `peer.ts` is the TypeScript counterpart.

A command is `{"id": 1, "do": "publish", "by": "a", "with": {...}}`. Its answer is `{"id": 1,
"gives": ...}` or `{"id": 1, "fails": {error}}` and may arrive at any time. Between the answers, the
peer sends events, `{"see": "a.states", "state": {...}}`. Times are milliseconds, names are in snake
case.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub import (
    AuthRefused,
    Gap,
    Message,
    PresenceChange,
    PresenceMember,
    Published,
    PubSubClient,
    PubSubError,
    ReceiveQueue,
    ReplyError,
    Responder,
    RetryOptions,
    SendQueue,
    StateChange,
    Subscription,
    TokenContext,
    TopicInfo,
)
from hanzoai.pubsub.streams import Started, StreamReader, stream_reader, stream_writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Json = dict[str, Any]
TIMES = frozenset(
    {
        "fetch_timeout",
        "open_timeout",
        "operation_timeout",
        "close_timeout",
        "ping_interval",
        "pong_timeout",
        "suspend_after",
        "refresh_margin",
        "fallback_after",
        "upgrade_after",
        "overlap",
        "timeout",
        "window",
        "base",
        "cap",
        "stable_after",
    }
)
GROUPS = {"retry": RetryOptions, "send_queue": SendQueue, "receive_queue": ReceiveQueue}
NUMBERS = {"nan": float("nan"), "infinity": float("inf"), "-infinity": float("-inf"), "-0": -0.0}


def _ignore(*_: object) -> None:
    pass


def read(value: Any) -> Any:
    """Decode values that JSON cannot express: `{"$number": "nan"}`, `{"$function": true}`."""
    if isinstance(value, dict):
        if value.keys() == {"$number"}:
            return NUMBERS[value["$number"]]
        if value.keys() == {"$function"}:
            return _ignore
        return {key: read(item) for key, item in value.items()}
    return [read(item) for item in value] if isinstance(value, list) else value


def seconds(given: Mapping[str, Any]) -> Json:
    return {
        name: value / 1000
        if name in TIMES and isinstance(value, int | float) and not isinstance(value, bool)
        else value
        for name, value in given.items()
    }


def options(given: Mapping[str, Any]) -> Json:
    found = seconds(given)
    for name, kind in GROUPS.items():
        if isinstance(found.get(name), dict):
            found[name] = kind(**seconds(found[name]))
    return found


def plain(value: object) -> Any:
    """Convert a received value to JSON."""
    match value:
        case PubSubError():
            return {"error": error(value)}
        case StateChange():
            reported = {
                f.name.rstrip("_"): getattr(value, f.name) for f in dataclasses.fields(value)
            }
            wait = value.retry_in
            return reported | {"retry_in": None if wait is None else round(wait * 1000)}
        case Published() | Gap() | PresenceChange():
            return {
                name.rstrip("_"): plain(getattr(value, name))
                for name in (field.name for field in dataclasses.fields(value))
            }
        case Message() | PresenceMember() | TopicInfo():
            return value.model_dump(mode="json", exclude_none=True, exclude={"data"}) | (
                {"data": value.data} if isinstance(value, Message) else {}
            )
        case list() | tuple():
            return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def error(problem: BaseException) -> Json:
    reported: Json = {"type": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, PubSubError):
        reported |= {
            "code": problem.code,
            "message": problem.message,
            "remedy": problem.remedy,
            "retryable": problem.retryable,
            "topic": problem.topic,
            "field": problem.field,
        }
        if problem.retry_after is not None:
            reported["retry_after"] = round(problem.retry_after * 1000)
        for name in ("outcome_unknown", "size", "limit"):
            if getattr(problem, name, None) is not None:
                reported[name] = getattr(problem, name)
    return reported


def tell(line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Client:
    """One client, and its events for the scenario."""

    def __init__(self, name: str, given: Json) -> None:
        self.name = name
        self._asked: dict[int, asyncio.Future[str]] = {}
        chosen = options(given)
        if chosen.get("get_token") == "ask":
            chosen["get_token"] = self._get_token
        self.ps = PubSubClient(
            on_state=lambda change: tell({"see": f"{name}.states", "state": plain(change)}),
            on_error=lambda problem: tell({"see": f"{name}.errors", "error": error(problem)}),
            **chosen,
        )

    async def _get_token(self, context: TokenContext) -> str:
        call = len(self._asked) + 1
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[call] = answer
        reported = {"call": call, "reason": context.reason, "attempt": context.attempt}
        tell({"see": f"{self.name}.tokens", "asked": reported})
        return await answer

    def give_token(self, call: int, token: str | None = None, raises: str | None = None) -> None:
        answer = self._asked[call]
        if answer.done():
            return
        if token is not None:
            answer.set_result(token)
        else:
            kind = AuthRefused if raises == "auth_refused" else RuntimeError
            answer.set_exception(kind("signed out"))


class Peer:
    """Clients and subscriptions by the names that a scenario gives them."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._subs: dict[str, Subscription] = {}
        self._responders: dict[str, Responder] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def answer(self, command: Json) -> None:
        given = read(command.get("with", {}))
        perform: Callable[..., Awaitable[Any]] = getattr(self, f"do_{command['do']}")
        by = () if command.get("by") is None else (command["by"],)
        try:
            tell({"id": command["id"], "gives": plain(await perform(*by, **given))})
        except Exception as problem:
            tell({"id": command["id"], "fails": error(problem)})

    async def do_new(self, client: str, /, **given: Any) -> None:
        self._clients[client] = Client(client, given)

    async def do_reset(self) -> Json:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.ps.close(0)
        self._subs.clear()
        readers, self._readers = self._readers, set()
        await asyncio.gather(*readers)
        return {"readers": len(readers)}

    async def do_connect(self, name: str, timeout: float | None = None) -> None:
        await self._ps(name).connect(seconds({"timeout": timeout})["timeout"])

    async def do_close(self, name: str, timeout: float | None = None) -> None:
        await self._ps(name).close(seconds({"timeout": timeout})["timeout"])

    async def do_state(self, name: str) -> Any:
        return self._ps(name).state

    async def do_give_token(self, name: str, **given: Any) -> None:
        self._clients[name].give_token(**given)

    async def do_publish(self, name: str, topic: Any, message: Any, **given: Any) -> Published:
        return await self._ps(name).publish(topic, message, **seconds(given))

    async def do_publish_many(self, name: str, messages: Any, **given: Any) -> Any:
        if isinstance(messages, list):
            messages = [tuple(one) if isinstance(one, list) else one for one in messages]
        return await self._ps(name).publish_many(messages, **seconds(given))

    async def do_info(self, name: str) -> Json:
        ps = self._ps(name)
        return {
            "state": ps.state,
            "transport": ps.transport,
            "last_failure": plain(ps.last_failure),
            "has_id": ps.client_id is not None,
            "limits": None if ps.limits is None else ps.limits.model_dump(exclude_none=True),
            "slowed": ps.slowed,
        }

    async def do_request(self, name: str, topic: Any, data: Any, **given: Any) -> Message:
        return await self._ps(name).request(topic, data, **seconds(given))

    async def do_respond(
        self, name: str, sub: str, topics: Any, behaviour: Json, **given: Any
    ) -> None:
        async def handle(request: Message) -> Any:
            tell({"see": sub, "request": plain(request)})
            if "reply_error" in behaviour:
                raise ReplyError(**behaviour["reply_error"])
            if behaviour.get("fails"):
                raise RuntimeError("the handler failed")
            return behaviour.get("gives", {"echo": request.data})

        self._responders[sub] = await self._ps(name).respond(topics, handle, **given)

    async def do_close_responder(self, sub: str, **given: Any) -> None:
        await self._responders[sub].close(**seconds(given))

    async def do_write(self, name: str, topic: Any, pieces: Any, end: Json, **given: Any) -> Any:
        writer = await stream_writer(self._ps(name), topic, **seconds(given)).open()
        for piece in pieces:
            await writer.write(piece)
        if "abort" in end:
            await writer.abort(end["abort"])
        else:
            await writer.complete(**end)
        return {"text": writer.text, "parts": plain(writer.parts), "epoch": writer.epoch}

    async def do_read_stream(self, name: str, sub: str, topic: Any, **given: Any) -> None:
        reader = stream_reader(self._ps(name), topic, **given)
        self._readers.add(asyncio.ensure_future(self._read_stream(sub, reader)))

    async def _read_stream(self, name: str, reader: StreamReader) -> None:
        try:
            async for event in reader:
                kind = "start" if isinstance(event, Started) else type(event).__name__.lower()
                tell({"see": name, "event": kind})
            final = await reader.final()
            tell({"see": name, "final": final.reason, "text": final.text})
        except PubSubError as problem:
            tell({"see": name, "ended": error(problem)})

    async def do_take(self, sub: str, count: int) -> list[Any]:
        """Return the next messages, `end`, or the error that ended the subscription."""
        found: list[Any] = []
        source = self._subs[sub]
        try:
            while len(found) < count:
                found.append(plain(await anext(source)))
        except StopAsyncIteration:
            found.append("end")
        except PubSubError as problem:
            found.append({"error": error(problem)})
        return found

    async def do_topic(self, name: str, topic: Any, call: str, args: Any, **given: Any) -> Any:
        handle = self._ps(name).topic(topic)
        if call == "history":
            return [message async for message in handle.history(**seconds(given))]
        found = await getattr(handle, call)(*args, **seconds(given))
        return found.model_dump() if call == "occupancy" else found

    async def do_publish_each(self, name: str, topic: Any, data: list[Any]) -> int:
        ps = self._ps(name)
        await asyncio.gather(*(ps.publish(topic, {"data": one}) for one in data))
        return len(data)

    async def do_history(self, name: str, topic: Any, **given: Any) -> list[Message]:
        return [message async for message in self._ps(name).history(topic, **seconds(given))]

    async def do_history_data(self, name: str, topic: Any, **given: Any) -> list[Any]:
        return [message.data for message in await self.do_history(name, topic, **given)]

    async def do_presence(self, name: str, topic: Any) -> list[PresenceMember]:
        return await self._ps(name).presence(topic)

    async def do_occupancy(self, name: str, topic: Any) -> Json:
        return (await self._ps(name).occupancy(topic)).model_dump()

    async def do_update_presence(
        self, name: str, data: Any, topic: Any = None, **given: Any
    ) -> None:
        await self._ps(name).update_presence(topic, data, **seconds(given))

    async def do_topics(self, name: str, prefix: Any = None, limit: Any = None) -> list[TopicInfo]:
        return await self._ps(name).topics(prefix, limit=limit)

    async def do_subscribe(
        self, name: str, sub: str, topics: Any, mode: str = "events", **given: Any
    ) -> Json:
        if isinstance(given.get("queue"), dict):
            base = {"messages": 1024, "bytes": 8 << 20, "policy": "gap"}
            given["queue"] = ReceiveQueue(**(base | given["queue"]))
        if mode == "acting":
            given["on_message"] = partial(self._act, sub, given.pop("handler"))
        if mode == "handlers":
            given |= {
                "on_message": partial(self._event, sub),
                "on_presence": partial(self._event, sub),
                "on_gap": partial(self._event, sub),
            }
        elif mode == "presence":
            given["on_presence"] = partial(self._event, sub)
        found = self._subs[sub] = self._ps(name).subscribe(topics, **given)
        await found
        if mode == "events":
            self._read(sub, found)
        return {
            "topics": list(found.topics),
            "denied": [{"topic": one.topic, "code": one.code} for one in found.denied],
        }

    async def do_read(self, sub: str) -> None:
        self._read(sub, self._subs[sub])

    async def do_unsubscribe(self, sub: str) -> None:
        await self._subs[sub].unsubscribe()

    async def do_positions(self, sub: str) -> Json:
        return dict(self._subs[sub].positions)

    async def do_stats(self, sub: str) -> Json:
        return dataclasses.asdict(self._subs[sub].stats)

    async def do_active(self, sub: str) -> bool:
        return self._subs[sub].active

    def _ps(self, name: str) -> PubSubClient:
        return self._clients[name].ps

    def _read(self, name: str, sub: Subscription) -> None:
        self._readers.add(asyncio.ensure_future(self._reading(name, sub)))

    async def _reading(self, name: str, sub: Subscription) -> None:
        try:
            async for event in sub.events():
                self._event(name, event)
            tell({"see": name, "ended": None})
        except PubSubError as problem:
            tell({"see": name, "ended": error(problem)})

    async def _act(self, name: str, handler: Json, message: Message) -> None:
        self._event(name, message)
        if message.data != handler["at"]:
            return
        match handler["do"]:
            case "fail":
                raise RuntimeError("the handler failed")
            case "unsubscribe":
                await self._subs[name].unsubscribe()
            case "close":
                await self._ps(handler["by"]).close()
            case do:
                assert do == "publish", do
                again = {"data": ["again", message.data]}
                done = await self._ps(handler["by"]).publish(message.topic, again)
                tell({"see": name, "published": plain(done)})

    def _event(self, name: str, event: object) -> None:
        kinds: dict[type, str] = {Message: "message", Gap: "gap", PresenceChange: "presence"}
        kind = kinds[type(event)]
        tell({"see": name, kind: plain(event)})


def unraisable(reported: sys.UnraisableHookArgs) -> None:
    # If a request is cancelled while it is sent, httpcore leaves its socket to the collector.
    if not str(reported.exc_value).startswith("unclosed "):
        tell({"see": "trouble", "trouble": repr(reported.exc_value)})


async def main() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: tell({"see": "trouble", "trouble": str(context.get("message"))})
    )
    sys.unraisablehook = unraisable
    lines: asyncio.Queue[str] = asyncio.Queue()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=listen, daemon=True).start()
    peer = Peer()
    running: set[asyncio.Task[None]] = set()
    tell({"ready": "python"})
    while line := await lines.get():
        task = loop.create_task(peer.answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    await peer.do_reset()


if __name__ == "__main__":
    asyncio.run(main())
