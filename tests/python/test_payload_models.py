"""Topics with a model: programs publish and receive objects of their own classes."""

from __future__ import annotations

import asyncio
import datetime
import logging
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    field_serializer,
    model_validator,
)
from typing_extensions import TypedDict

from hanzoai.pubsub import (
    InvalidOption,
    InvalidPayload,
    Message,
    Publication,
    PubSub,
    PubSubClient,
    SchemaError,
)
from hanzoai.pubsub.payload_models import PayloadModel, plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from hanzoai.pubsub.testing import MemoryServer, ThreadedServer
    from hanzoai.pubsub.values import OnInvalid

DAY = datetime.date(2026, 1, 31)
ID = UUID(int=7)


class Item(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    model_config = ConfigDict(strict=True)
    id: UUID
    day: datetime.date
    total: Decimal = Field(alias="totalPrice")
    items: list[Item] = []


@dataclass
class Reading:
    sensor: str
    celsius: float
    taken: datetime.date = DAY
    tags: list[str] = field(default_factory=list)


class Point(TypedDict):
    x: int
    y: int


class Tick(msgspec.Struct, rename="camel"):
    last_price: float
    kind: Literal["bid", "ask"]
    day: datetime.date = DAY


class Started(BaseModel):
    kind: Literal["started"]


class Stopped(BaseModel):
    kind: Literal["stopped"]
    code: int


ORDER = Order(id=ID, day=DAY, totalPrice=Decimal("9.90"), items=[Item(sku="a", count=2)])
CASES = [
    (
        Order,
        ORDER,
        {
            "id": str(ID),
            "day": "2026-01-31",
            "totalPrice": "9.90",
            "items": [{"sku": "a", "count": 2}],
        },
    ),
    (
        Reading,
        Reading("s1", 20.5),
        {"sensor": "s1", "celsius": 20.5, "taken": "2026-01-31", "tags": []},
    ),
    (Point, {"x": 1, "y": 2}, {"x": 1, "y": 2}),
    (Tick, Tick(1.5, "bid"), {"lastPrice": 1.5, "kind": "bid", "day": "2026-01-31"}),
    (list[int], [1, 2], [1, 2]),
]


def model_of(model: Any, on_invalid: OnInvalid = "raise") -> PayloadModel[Any]:
    def report(error: Exception, topic: str) -> None:
        raise AssertionError((error, topic))

    return PayloadModel(model, on_invalid, report)


def message(data: object) -> Message:
    return Message(id="msg_1", topic="shop.1", type="t", data=data, timestamp=1)


@pytest.mark.parametrize(("model", "value", "json"), CASES, ids=lambda case: str(case)[:20])
def test_every_kind_of_model_is_json_on_the_wire_and_an_object_in_programs(
    model: Any, value: Any, json: Any
) -> None:
    topic = model_of(model)
    sent = topic.outgoing("shop.1", {"type": "t", "data": value, "ttl": 3})
    assert sent == {"type": "t", "data": json, "ttl": 3}
    read = topic.read(message(json))
    assert read is not None
    assert (read.data, read.id, read.topic) == (value, "msg_1", "shop.1")
    assert type(read) is Message


@pytest.mark.parametrize("value", [ORDER, Reading("s1", 1.0), Tick(1.5, "ask")])
def test_an_object_alone_is_a_payload_with_and_without_a_model(value: Any) -> None:
    with_model = model_of(type(value)).outgoing("shop.1", value)
    assert with_model == {"data": plain(value)}


def test_a_publication_keeps_its_other_fields() -> None:
    given = Publication(topic="shop.1", type="t", data={"x": 1, "y": 2}, meta={"a": 1})
    assert model_of(Point).outgoing("shop.1", given) == given


@pytest.mark.parametrize(
    ("model", "data", "fields"),
    [
        (
            Order,
            {"day": "2026-01-31", "totalPrice": "1", "id": str(ID), "items": [{}]},
            "items[0].sku",
        ),
        (Order, {"day": "soon", "totalPrice": "1", "id": str(ID)}, "day"),
        (Reading, {"sensor": "s1", "celsius": "hot"}, "celsius"),
        (Point, {"x": 1}, "y"),
        (Point, 5, ""),
        (Tick, {"kind": "bid"}, "lastPrice"),
        (Tick, {"lastPrice": 1, "kind": "SECRET"}, "kind"),
        (TypeAdapter(Started | Stopped), {"kind": "stopped"}, "Stopped.code"),
    ],
)
def test_a_message_that_does_not_match_names_topic_field_and_message(
    model: Any, data: Any, fields: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        model_of(model).read(message(data))
    error = caught.value
    assert (error.code, error.topic, error.id) == ("schema", "shop.1", "msg_1")
    assert isinstance(error, ValueError)
    if not isinstance(model, TypeAdapter):
        assert error.field == f"data.{fields}".rstrip(".")
    assert error.field is not None
    for part in ("msg_1", "shop.1", f"`{error.field}`"):
        assert part in str(error)
    for value in ("SECRET", "hot", "soon"):
        assert value not in str(error)


def test_a_tag_that_no_member_of_a_union_has_is_not_shown() -> None:
    union = TypeAdapter[Any](Started | Stopped)
    tagged: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
    assert tagged.validate_python({}) == {}
    with pytest.raises(SchemaError) as caught:
        model_of(union).read(message({"kind": "SECRET"}))
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "value", "name"),
    [
        (Reading, Reading("s1", "hot"), "data.celsius"),  # type: ignore[arg-type]
        (Reading, {"sensor": "s1"}, "data.celsius"),
        (Point, {"x": 1, "z": 2}, "data.y"),
        (Tick, Tick(1.5, "all"), "data.kind"),  # type: ignore[arg-type]
        (Order, Reading("s1", 1.0), "data.id"),
        (Reading, object(), "data"),
        (Tick, object(), "data"),
        (Reading, Reading("s1", object()), "data"),  # type: ignore[arg-type]
    ],
)
def test_a_payload_that_subscribers_cannot_read_is_not_published(
    model: Any, value: Any, name: str
) -> None:
    for given in (value, {"data": value}):
        if isinstance(given, dict) and "data" not in given:
            continue
        with pytest.raises(SchemaError) as caught:
            model_of(model).outgoing("shop.1", given)
        assert (caught.value.field, caught.value.topic, caught.value.id) == (name, "shop.1", None)


def test_a_value_that_pydantic_converts_is_published_with_its_type() -> None:
    given = Reading("s1", "20.5")  # type: ignore[arg-type]
    sent = model_of(Reading).outgoing("shop.1", given)
    assert isinstance(sent, dict)
    assert sent["data"]["celsius"] == 20.5


class Photo(BaseModel):
    pixels: bytes


@dataclass
class Blob:
    content: Any


class Struct(msgspec.Struct):
    content: Any


class Failing(BaseModel):
    count: int

    @field_serializer("count")
    def write(self, count: int) -> int:
        raise KeyError(count)


def looped(kind: type[Any]) -> Any:
    value: list[object] = []
    value.append(value)
    return kind(value)


WITHOUT_JSON = [
    (Photo(pixels=b"\xff"), "bytes that are not UTF-8"),
    (Blob(b"\xff"), "bytes that are not UTF-8"),
    (looped(Blob), "contains itself"),
    (looped(Struct), "contains itself"),
    (Blob({"a": object()}), "JSON does not support"),
    (Failing(count=13), "whose serializer raised KeyError"),
]


@pytest.mark.parametrize(("value", "problem"), WITHOUT_JSON, ids=lambda case: str(case)[:12])
async def test_an_object_that_has_no_json_is_refused_with_the_reason(
    pubsub_memory: MemoryServer, value: Any, problem: str
) -> None:
    ps = pubsub_memory.client()
    for given in (value, {"data": value}):
        with pytest.raises(SchemaError, match=problem) as plain:
            await ps.publish("shop.1", given)
        with pytest.raises(SchemaError, match=problem) as checked:
            await ps.topic("shop.1", model=type(value)).publish(given)
        for caught in (plain, checked):
            assert isinstance(caught.value.__cause__, KeyError) is isinstance(value, Failing)
            assert "13" not in str(caught.value)
    assert not pubsub_memory.received


def test_text_that_utf_8_cannot_encode_is_left_to_the_check_of_payloads() -> None:
    given = Blob("\ud800")
    assert model_of(Blob).outgoing("shop.1", given) == {"data": {"content": "\ud800"}}


class Older(BaseModel):
    """Reads another member than the newer version writes, which no validator of pydantic sees."""

    sku: str

    @model_validator(mode="before")
    @classmethod
    def read(cls, data: Any) -> Any:
        return {"sku": data["item"]["sku"]}


def test_an_exception_of_a_validator_is_a_payload_that_does_not_match() -> None:
    newer = message({"sku": "SECRET"})
    with pytest.raises(SchemaError, match="The model raised KeyError") as caught:
        model_of(Older).read(newer)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "SECRET" not in str(caught.value)
    assert model_of(Older, "raw").read(newer) == newer
    errors: list[Exception] = []
    skipping = PayloadModel[Any](Older, "skip", lambda error, _: errors.append(error))
    assert skipping.read(newer) is None
    assert [type(error.__cause__) for error in errors] == [KeyError]


def test_an_invalid_model_is_rejected_when_the_topic_is_created() -> None:
    ps = PubSubClient("ws://localhost:1", "t")

    class Opaque:
        pass

    for model in (Opaque, "Order", {}, {"type": "object"}):
        with pytest.raises(InvalidOption, match="model") as caught:
            ps.topic("shop.1", model=model)  # type: ignore[arg-type]
        assert caught.value.field == "model"
    with pytest.raises(InvalidOption) as caught:
        ps.topic("shop.1", model=Point, on_invalid="ignore")  # type: ignore[call-overload]
    assert caught.value.field == "on_invalid"


def test_presence_is_not_a_payload_of_the_topic() -> None:
    given = {"type": "presence.update", "data": {"status": "busy"}}
    assert model_of(Point).outgoing("shop.1", given) == given


# ---------------------------------------------------------------- clients


@pytest.fixture
async def ps(pubsub_memory: MemoryServer) -> AsyncIterator[PubSubClient]:
    async with pubsub_memory.client() as ps:
        yield ps


async def test_an_iteration_raises_at_the_message_and_continues_after_it(
    pubsub_memory: MemoryServer, ps: PubSubClient
) -> None:
    points = ps.topic("shop.1", model=Point)
    async with asyncio.timeout(60), points.subscribe() as sub:
        await points.publish({"type": "t", "data": {"x": 1, "y": 1}})
        bad = await pubsub_memory.publish("shop.1", {"data": {"x": 2}})
        await points.publish({"type": "t", "data": {"x": 3, "y": 3}})
        assert (await anext(sub)).data == {"x": 1, "y": 1}
        with pytest.raises(SchemaError) as caught:
            await anext(sub)
        assert caught.value.id == bad.id
        assert (await anext(sub)).data == {"x": 3, "y": 3}


async def test_a_skipped_message_is_reported_and_the_next_one_follows(
    pubsub_memory: MemoryServer,
) -> None:
    errors: list[Exception] = []
    async with asyncio.timeout(60), pubsub_memory.client(on_error=errors.append) as ps:
        points = ps.topic("shop.1", model=Point, on_invalid="skip")
        async with points.subscribe() as sub, points.subscribe() as second:
            bad = await pubsub_memory.publish("shop.1", {"data": 5})
            await points.publish({"data": {"x": 1, "y": 1}})
            assert (await anext(sub)).data == {"x": 1, "y": 1}
            event = await anext(second.events())
            assert isinstance(event, Message)
            assert event.data == {"x": 1, "y": 1}
        assert [one.data async for one in points.history()] == [{"x": 1, "y": 1}]
    assert [error.id for error in errors if isinstance(error, SchemaError)] == [bad.id] * 3


async def test_without_on_error_a_skipped_message_is_logged(
    pubsub_memory: MemoryServer, ps: PubSubClient, caplog: pytest.LogCaptureFixture
) -> None:
    points = ps.topic("shop.1", model=Point, on_invalid="skip")
    async with asyncio.timeout(60), points.subscribe() as sub:
        await pubsub_memory.publish("shop.1", {"data": "SECRET"})
        await points.publish({"data": {"x": 1, "y": 1}})
        with caplog.at_level(logging.ERROR, "hanzoai.pubsub"):
            await anext(sub)
    assert "schema" in caplog.text
    assert "shop.1" in caplog.text
    assert "SECRET" not in caplog.text


async def test_raw_delivers_the_json_of_what_does_not_match(
    pubsub_memory: MemoryServer, ps: PubSubClient
) -> None:
    readings = ps.topic("shop.1", model=Reading, on_invalid="raw")
    async with asyncio.timeout(60), readings.subscribe() as sub:
        await pubsub_memory.publish("shop.1", {"data": {"celsius": "hot"}})
        await readings.publish(Reading("s1", 1.0))
        assert (await anext(sub)).data == {"celsius": "hot"}
        assert (await anext(sub)).data == Reading("s1", 1.0)


@pytest.mark.parametrize("policy", ["raise", "skip"])
async def test_a_handler_gets_objects_and_on_error_the_rest(
    pubsub_memory: MemoryServer, policy: Literal["raise", "skip"]
) -> None:
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    seen: asyncio.Queue[Reading] = asyncio.Queue()

    async def show(message: Message[Reading]) -> None:
        await seen.put(message.data)

    async with asyncio.timeout(60), pubsub_memory.client(on_error=errors.put) as ps:
        readings = ps.topic("shop.1", model=Reading, on_invalid=policy)
        await readings.subscribe(on_message=show)
        await pubsub_memory.publish("shop.1", {"data": 5})
        await readings.publish(Reading("s1", 1.0))
        assert await seen.get() == Reading("s1", 1.0)
        error = await errors.get()
    assert isinstance(error, SchemaError)
    assert seen.empty()
    assert errors.empty()


async def test_history_raises_at_the_message_and_continues_after_it(
    pubsub_memory: MemoryServer, ps: PubSubClient
) -> None:
    points = ps.topic("shop.1", model=Point)
    await pubsub_memory.publish("shop.1", {"data": 5})
    await points.publish({"data": {"x": 1, "y": 1}})
    history = points.history()
    async with asyncio.timeout(60):
        with pytest.raises(SchemaError):
            await anext(history)
        assert (await anext(history)).data == {"x": 1, "y": 1}
        with pytest.raises(StopAsyncIteration):
            await anext(history)


async def test_any_publish_takes_objects_of_models(ps: PubSubClient) -> None:
    async with asyncio.timeout(60), ps.subscribe("shop.1") as sub:
        await ps.publish("shop.1", Item(sku="a"))
        await ps.publish("shop.1", {"type": "reading", "data": Reading("s1", 1.0)})
        await ps.publish_many([("shop.1", {"data": Tick(1.5, "bid")})])
        async with ps.batch() as batch:
            batch.publish("shop.1", Item(sku="b"))
        seen = [(one.type, one.data) for one in [await anext(sub) for _ in range(4)]]
    assert seen == [
        ("message", {"sku": "a", "count": 1}),
        ("reading", {"sensor": "s1", "celsius": 1.0, "taken": "2026-01-31", "tags": []}),
        ("message", {"lastPrice": 1.5, "kind": "bid", "day": "2026-01-31"}),
        ("message", {"sku": "b", "count": 1}),
    ]


async def test_a_received_message_is_not_a_payload(ps: PubSubClient) -> None:
    with pytest.raises(InvalidPayload):
        await ps.publish("shop.1", message({"x": 1}))
    with pytest.raises(InvalidPayload):
        await ps.publish("shop.1", Item)  # type: ignore[arg-type]


# ---------------------------------------------------------------- blocking


@pytest.fixture
def blocking(pubsub_server: ThreadedServer) -> Iterator[PubSub]:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        yield ps


def test_the_blocking_client_reads_objects_and_raises_in_order(blocking: PubSub) -> None:
    points = blocking.topic("demo.1", model=Point)
    with points.subscribe() as sub, points.subscribe() as other:
        points.publish({"data": {"x": 1, "y": 1}})
        bad = blocking.publish("demo.1", {"data": 5})
        points.publish({"data": {"x": 2, "y": 2}})
        for reader in (sub, other.events()):
            assert getattr(next(reader), "data", None) == {"x": 1, "y": 1}
            with pytest.raises(SchemaError) as caught:
                next(reader)
            assert caught.value.id == bad.id
            assert getattr(next(reader), "data", None) == {"x": 2, "y": 2}
    with pytest.raises(SchemaError):
        points.publish({"data": {"x": 1}})  # type: ignore[arg-type]


def test_the_blocking_client_reports_what_it_skips(pubsub_server: ThreadedServer) -> None:
    errors: list[Exception] = []
    with PubSub(
        token=pubsub_server.admin_token(), on_error=errors.append, **pubsub_server.options
    ) as ps:
        points = ps.topic("demo.1", model=Point, on_invalid="skip")
        bad = ps.publish("demo.1", {"data": 5})
        points.publish({"data": {"x": 1, "y": 1}})
        assert [one.data for one in points.history()] == [{"x": 1, "y": 1}]
        with points.subscribe(history=2) as sub:
            assert sub.next(30).data == {"x": 1, "y": 1}
    assert [error.id for error in errors if isinstance(error, SchemaError)] == [bad.id, bad.id]
