"""Type checks of topics with a model: each ignored line is an error without its comment.

mypy and pyright read this file; it does not run.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel
from typing_extensions import TypedDict

from hanzoai.pubsub import (
    BlockingSubscription,
    Gap,
    Message,
    PresenceChange,
    PubSub,
    PubSubClient,
    Subscription,
)
from hanzoai.pubsub.topic import TopicHandle


class Order(BaseModel):
    sku: str
    count: int


@dataclass
class Reading:
    celsius: float


class Point(TypedDict):
    x: int


def handle(message: Message[Order]) -> None:
    assert_type(message.data.count, int)


def handle_reading(message: Message[Reading]) -> None:
    assert_type(message.data, Reading)


def plain(message: Message) -> Any:
    return message.data["anything"]


async def models(ps: PubSubClient) -> None:
    orders = ps.topic("orders", model=Order)
    assert_type(orders, TopicHandle[Order])
    await orders.publish(Order(sku="a", count=1))
    await orders.publish({"type": "order.created", "data": Order(sku="a", count=1)})
    await orders.publish({"data": Reading(1.0)})  # type: ignore[arg-type]
    await orders.publish(Reading(1.0))  # type: ignore[arg-type]
    sub = orders.subscribe(on_message=handle)
    assert_type(sub, Subscription[Order])
    orders.subscribe(on_message=handle_reading)  # type: ignore[arg-type]
    orders.subscribe(on_message=plain)
    async for message in sub:
        assert_type(message, Message[Order])
        print(message.data.sku)
        print(message.data.sku_of)  # type: ignore[attr-defined]
    async for event in sub.events():
        assert_type(event, Message[Order] | Gap | PresenceChange)
    async for message in orders.history():
        assert_type(message.data, Order)


def handle_either(message: Message[Order | Reading]) -> None:
    assert_type(message.data, Order | Reading)


async def first(sub: Subscription[Order | Reading]) -> Message[object]:
    return await anext(sub)


async def several_models(ps: PubSubClient) -> None:
    orders, readings = ps.topic("orders", model=Order), ps.topic("readings", model=Reading)
    orders.subscribe(on_message=handle_either)
    readings.subscribe(on_message=handle_either)
    assert_type(await first(orders.subscribe()), Message[object])
    either: TopicHandle[Order | Reading] = orders  # type: ignore[assignment]
    await either.publish(Reading(1.0))


async def dictionaries(ps: PubSubClient) -> None:
    points = ps.topic("points", model=Point)
    await points.publish({"type": "point", "data": {"x": 1}})
    await points.publish({"type": "point", "data": {"y": 1}})  # type: ignore[arg-type]


async def raw(ps: PubSubClient) -> None:
    readings = ps.topic("readings", model=Reading, on_invalid="raw")
    async for message in readings.subscribe():
        if isinstance(message.data, Reading):
            assert_type(message.data.celsius, float)


async def without(ps: PubSubClient) -> None:
    async for message in ps.subscribe("orders"):
        assert_type(message.data, Any)
        plain(message)
    await ps.publish("orders", Order(sku="a", count=1))
    await ps.publish("orders", {"type": "reading", "data": Reading(1.0)})
    await ps.publish("orders", 5)  # type: ignore[arg-type]


def next_of(sub: BlockingSubscription[Order | Reading]) -> Message[object]:
    return sub.next()


def blocking(ps: PubSub) -> None:
    orders = ps.topic("orders", model=Order)
    orders.publish(Order(sku="a", count=1))
    with orders.subscribe() as sub:
        assert_type(sub.next(), Message[Order])
        for message in sub:
            assert_type(message.data.count, int)
            print(message.data.price)  # type: ignore[attr-defined]
        next_of(sub)
