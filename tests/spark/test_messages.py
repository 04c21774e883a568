from __future__ import annotations

import json
import math
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import VariantVal

from hanzoai.pubsub.errors import InvalidOption, InvalidPayload, InvalidTopic, PayloadTooLarge
from hanzoai.pubsub.spark import PubSubConfig
from hanzoai.pubsub.spark.ids import IdStrategy, numbering
from hanzoai.pubsub.spark.messages import Encoder, letter
from hanzoai.pubsub.spark.pace import Pace
from hanzoai.pubsub.spark.publish import Task, namespace_of
from hanzoai.pubsub.spark.records import Chunk, Record, chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

pa: Any = import_module("pyarrow")

URL = "http://127.0.0.1:8056"


def encoder(**changes: Any) -> Encoder:
    config = PubSubConfig(URL, **changes)
    return Encoder(config, numbering(config.ids, "job", 0))


def records(rows: Iterable[Any]) -> list[Record]:
    found = chunks(rows, 500, 1 << 20)
    return [chunk.record(place) for chunk in found for place in range(len(chunk.data))]


def item(encode: Encoder, **fields: object) -> dict[str, Any]:
    (record,) = records([{"topic": "a.b", "data": "1", **fields}])
    message = encode.encode(record)
    assert message.size == len(message.text.encode())
    read: dict[str, Any] = json.loads(message.text)
    return read


def test_a_row_becomes_the_item_of_a_batch() -> None:
    made = item(encoder(), data='{"x": "ü\\u0007"}', type='a"b', ttl=5, id='i"1')
    assert made == {"topic": "a.b", "type": 'a"b', "data": {"x": "ü\x07"}, "ttl": 5, "id": 'i"1'}


def test_columns_override_options() -> None:
    encode = encoder(topic="x.y", type="t", ttl=9)
    assert (made := item(encode, topic=None))["topic"] == "x.y"
    assert (made["type"], made["ttl"]) == ("t", 9)
    assert (made := item(encode, type="u", ttl=0))["topic"] == "a.b"
    assert (made["type"], made["ttl"]) == ("u", 0)


def test_values_that_json_lacks_are_written_as_text() -> None:
    value = {
        "at": datetime(2026, 2, 23, 12, tzinfo=UTC),
        "day": date(2026, 2, 23),
        "sum": Decimal("1.10"),
        "small": [Decimal("0E-18"), Decimal("-0.000000001")],
        "span": timedelta(seconds=90),
        "row": Row(a=1, b=[Row(c=None)]),
        "map": {1: 2.5, False: "x"},
    }
    assert item(encoder(), data=value)["data"] == {
        "at": "2026-02-23T12:00:00+00:00",
        "day": "2026-02-23",
        "sum": "1.10",
        "small": ["0.000000000000000000", "-0.000000001"],
        "span": 90.0,
        "row": {"a": 1, "b": [{"c": None}]},
        "map": {"1": 2.5, "false": "x"},
    }


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"topic": "a.*"}, InvalidTopic, "topic"),
        ({"topic": "a..b"}, InvalidTopic, "topic"),
        ({"topic": None}, InvalidTopic, "topic"),
        ({"topic": 5}, InvalidTopic, "topic"),
        ({"data": "{oops"}, InvalidPayload, "data"),
        ({"data": "NaN"}, InvalidPayload, "data"),
        ({"data": None}, InvalidPayload, "data"),
        ({"data": b"x"}, InvalidPayload, "data"),
        ({"data": {"x": float("nan")}}, InvalidPayload, "data"),
        ({"data": '"' + "x" * 300 + '"'}, PayloadTooLarge, "data"),
        ({"type": 5}, InvalidPayload, "type"),
        ({"type": ""}, InvalidPayload, "type"),
        ({"ttl": -1}, InvalidPayload, "ttl"),
        ({"ttl": True}, InvalidPayload, "ttl"),
        ({"id": 7}, InvalidPayload, "id"),
        ({"id": "x" * 129}, InvalidPayload, "id"),
        ({"id": "\ud800"}, InvalidPayload, "id"),
    ],
)
def test_a_bad_row_names_its_column(
    fields: dict[str, object], error: type[Exception], field: str
) -> None:
    with pytest.raises(error) as caught:
        item(encoder(max_message_bytes=256), **fields)
    assert getattr(caught.value, "field", None) == field
    assert str(caught.value).startswith(f"Column `{field}`")


def test_a_ttl_beyond_the_most_is_refused_with_the_bound() -> None:
    with pytest.raises(InvalidPayload, match="from 0 to 2,147,483,647"):
        item(encoder(), ttl=9_999_999_999)


def test_the_remedy_for_a_value_that_json_lacks_fits_its_cause() -> None:
    twice = Row("x", "x")(1, 2)
    for value, remedy in ((float("nan"), "Replace it"), (b"x", "base64"), (twice, "Rename")):
        with pytest.raises(InvalidPayload) as caught:
            item(encoder(), data={"x": value})
        assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (math.nan, "JSON: it is NaN or infinite"),
        ({"score": math.inf}, "JSON: `data.score` is NaN or infinite"),
        (Row(id=1, score=math.nan), "JSON: `data.score` is NaN or infinite"),
        (
            Row(all=[Row(at={"a": 0.0, "b": math.nan})]),
            "JSON: `data.all[0].at.b` is NaN or infinite",
        ),
        ([[1.0], [2.0, -math.inf]], "JSON: `data[1][1]` is NaN or infinite"),
        ({"sums": {math.nan: 1}}, "JSON: `data.sums` has a key that is NaN or infinite"),
        ({"parts": [b"x"]}, "JSON: `data.parts[0]` is of type bytes, which JSON does not support"),
        ({"twice": Row("x", "x")(1, 2)}, "JSON: `data.twice` has two fields of the same name"),
        ({"names": ["\ud800"]}, "JSON: `data.names[0]` has characters that UTF-8 cannot encode"),
        ({"k" * 10_000: math.nan}, f"JSON: `data.{'k' * 64}` is NaN or infinite"),
    ],
)
def test_a_value_that_json_lacks_is_named_with_its_place(data: object, words: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        item(encoder(), data=data)
    assert caught.value.field == "data"
    assert words in caught.value.message


def test_blanks_do_not_count_against_the_size_of_a_message() -> None:
    assert item(encoder(max_message_bytes=10), data="[1," + " " * 50 + "2]")["data"] == [1, 2]


def test_the_id_of_a_column_is_taken_and_missed() -> None:
    assert item(encoder(ids="column"), id="i1")["id"] == "i1"
    with pytest.raises(InvalidPayload, match="id"):
        item(encoder(ids="column"))
    assert item(encoder(ids="content"), id="i1")["id"] != "i1"


def ids(rows: list[str], strategy: IdStrategy = "content", **where: Any) -> list[str]:
    number = numbering(strategy, where.get("namespace", "job"), where.get("partition", 0))
    return [number(row) for row in rows]


def test_content_ids_do_not_depend_on_the_order_of_rows() -> None:
    rows = [f"row {n % 40}" for n in range(100)]
    shuffled = random.Random(7).sample(rows, len(rows))
    assert len(set(ids(rows))) == 100
    assert sorted(ids(rows)) == sorted(ids(shuffled))
    by_row = dict(zip(rows, ids(rows), strict=True))
    assert by_row.keys() == dict(zip(shuffled, ids(shuffled), strict=True)).keys()


@pytest.mark.parametrize("strategy", ["content", "position"])
def test_rows_that_are_numbered_together_have_the_ids_of_single_rows(
    strategy: IdStrategy,
) -> None:
    parts = [["a", "b"], ["c"], ["d", "d"], ["e", "a"], ["f", "g"], []]
    together = numbering(strategy, "job", 0)
    rows = [row for part in parts for row in part]
    assert [id for part in parts for id in together.each(part)] == ids(rows, strategy)


def test_other_jobs_and_partitions_have_other_ids() -> None:
    every = ids(["a"]) + ids(["a"], namespace="other") + ids(["a"], partition=1)
    assert len(set(every)) == 3


def test_position_ids_go_by_place_and_random_ones_by_nothing() -> None:
    assert ids(["a", "b"], "position") == ids(["b", "a"], "position")
    assert set(ids(["a"], "random")).isdisjoint(ids(["a"], "random"))


def test_the_namespace_is_the_same_for_each_attempt_and_another_for_each_batch() -> None:
    config = PubSubConfig(URL)
    first, again = Task(0, 0, 4), Task(0, 1, 4)
    assert namespace_of(config, None, first) == namespace_of(config, None, again)
    assert namespace_of(config, None, first) != namespace_of(config, None, Task(0, 0, 5))
    assert namespace_of(config, None, first) != namespace_of(PubSubConfig(URL), None, first)
    named = PubSubConfig(URL, id_namespace="nightly")
    assert namespace_of(named, None, first) == namespace_of(named, None, Task(0, 0, 9))
    batches = {namespace_of(named, "n", Task(batch=f"query:{n}")) for n in range(3)}
    assert len(batches) == 3


def test_two_names_and_two_calls_without_a_name_have_their_own_namespaces() -> None:
    named = PubSubConfig(URL, id_namespace="nightly")
    names = {namespace_of(named, name, Task(batch="query:1")) for name in (None, "a", "b")}
    assert len(names) == 3
    for batch in (None, "query:1"):
        calls = {namespace_of(PubSubConfig(URL), None, Task(0, 0, 4, batch, c)) for c in ("", "1")}
        assert len(calls) == 2
        assert namespace_of(named, None, Task(call="1")) == namespace_of(named, None, Task())


def test_rows_dicts_and_arrow_batches_are_the_same_records() -> None:
    wanted = [Record("a.b", None, "1", 3, None), Record("c.d", None, "2", None, None)]
    dicts: list[dict[str, Any]] = [
        {"topic": "a.b", "data": "1", "ttl": 3},
        {"topic": "c.d", "data": "2", "ttl": None},
    ]
    assert list(records(dicts)) == wanted
    assert list(records([Row(**one) for one in dicts])) == wanted
    assert list(records([pa.RecordBatch.from_pylist(dicts)])) == wanted


def test_an_arrow_map_is_an_object() -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.map_(pa.int32(), pa.int64())))]))
    column = pa.array([[{"m": [("a", [(1, 2)])]}], None], kind)
    found = [record.data for record in records([pa.RecordBatch.from_arrays([column], ["data"])])]
    assert found == [[{"m": {"a": {1: 2}}}], None]


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("GMT+8", "18:00:00+08:00"),
        ("UTC-3:30", "06:30:00-03:30"),
        ("+9", "19:00:00+09:00"),
        ("Z", "10:00:00+00:00"),
        ("PST", "10:00:00+00:00"),
        ("-08:00:30", "10:00:00+00:00"),
        ("Asia/Tokyo", "19:00:00+09:00"),
        (None, "10:00:00"),
    ],
)
def test_a_time_in_any_time_zone_of_spark_is_written(zone: str | None, shown: str) -> None:
    time = pa.timestamp("us", zone)
    at = pa.scalar(1_771_840_800_000_000, pa.int64()).cast(time)
    one, offsets = pa.array([at], time), pa.array([0, 1], pa.int32())
    many = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), one)
    iso = f"2026-02-23T{shown}"
    for column, wanted in (
        (one, iso),
        (pa.StructArray.from_arrays([one], ["x"]), {"x": iso}),
        (pa.ListArray.from_arrays(offsets, one), [iso]),
        (pa.MapArray.from_arrays(offsets, one, many), {iso: [iso]}),
    ):
        (record,) = records([pa.RecordBatch.from_pydict({"data": column})])
        assert json.loads(encoder(topic="a.b").encode(record).text)["data"] == wanted


def test_an_arrow_map_with_structs_as_keys_is_an_object() -> None:
    kind = pa.map_(pa.struct([("a", pa.int32())]), pa.map_(pa.list_(pa.int32()), pa.int32()))
    column = pa.array([[({"a": 1}, [([1, 2], 3)])]], kind)
    (record,) = records([pa.RecordBatch.from_arrays([column], ["data"])])
    assert record.data == {'{"a":1}': {"[1,2]": 3}}


def test_values_that_python_cannot_hold_spoil_their_rows_alone() -> None:
    year_10_000 = 253_402_300_800
    times = pa.array(
        [{"at": 0}, {"at": year_10_000}], pa.struct([("at", pa.timestamp("s", "UTC"))])
    )
    texts = pa.array([b"1", b'"\xff"']).view(pa.string())
    for column, wanted, why in (
        (times, {"at": "1970-01-01T00:00:00+00:00"}, "outside of the years 1 to 9999"),
        (texts, 1, "not UTF-8"),
    ):
        names = pa.array(["a.b"] * 2)
        batch = pa.RecordBatch.from_arrays([names, column], ["topic", "data"])
        (chunk,) = chunks([batch], 500, 1 << 20)
        encoded = encoder().encode_all(chunk)
        assert [json.loads(text)["data"] for text in encoded.messages.texts] == [wanted]
        ((place, error),) = encoded.refused
        assert (place, error.field) == (1, "data")
        assert why in error.message
        config = PubSubConfig(URL, on_error="deadletter:jobs.dead")
        made = letter(chunk.record(1), error, config, numbering("content", "n", 0))
        row = json.loads(made.text)["data"]["row"]
        assert (row["topic"], row["data"]) == ("a.b", "<Unreadable>")


def test_variants_are_json_wherever_they_are() -> None:
    one = VariantVal.parseJson('{"x": [1, null]}')
    arrow = {"value": one.value, "metadata": one.metadata}
    for variant in (one, arrow):
        for data, wanted in (
            (variant, {"x": [1, None]}),
            ({"v": variant, "all": [variant]}, {"v": {"x": [1, None]}, "all": [{"x": [1, None]}]}),
        ):
            assert item(encoder(), data=data)["data"] == wanted


def test_a_variant_with_nan_or_an_infinity_is_rejected() -> None:
    names = VariantVal.parseJson("1").metadata
    for number in (math.nan, math.inf, -math.inf):
        double = VariantVal(bytes([7 << 2]) + struct.pack("<d", number), names)
        for data in (double, {"v": double}):
            place = "it" if data is double else "`data.v`"
            with pytest.raises(InvalidPayload, match=f"{place} contains NaN or an infinity"):
                encoder().encode(Record("a.b", None, data, None, None))


def test_a_column_of_a_struct_may_be_named_like_a_method() -> None:
    for data in (Row(toJson="x"), Row(inner=Row(toJson=1))):
        assert item(encoder(), data=data)["data"] == data.asDict(recursive=True)


@pytest.mark.parametrize(
    ("row", "field"),
    [({"topic": "a"}, "data"), ({"data": "1", "dat": "2"}, "dat"), (5, "rows")],
)
def test_columns_that_do_not_fit_are_named(row: object, field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        list(records([row]))
    assert caught.value.field == field


def test_a_letter_holds_the_row_and_the_reason_and_has_a_lasting_id() -> None:
    config = PubSubConfig(URL, on_error="deadletter:jobs.dead", max_message_bytes=80)
    record = Record("a.*", None, "{" + "x" * 50, 5, None)
    error = InvalidPayload("no JSON", field="data")
    made = [
        json.loads(letter(record, error, config, numbering("content", "n", 0)).text)
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert made[0]["topic"] == "jobs.dead"
    assert made[0]["data"] == {
        "error": {"code": "invalid_payload", "field": "data", "message": "no JSON"},
        "row": {"topic": "a.*", "type": None, "id": None, "ttl": "5", "data": "{xxxxxxxxx"},
        "truncated": True,
    }


def test_a_pace_is_unlimited_until_the_server_limits_it() -> None:
    pace = Pace()
    assert (pace.take(10_000, 0.0), pace.most(10_000)) == (0.0, 10_000)
    pace.limited(100, 1.0, 0.0)
    assert pace.most(10_000) == 100
    assert pace.take(50, 1.0) == 0.5
    assert pace.take(50, 1.0) == 1.0
    assert pace.take(50, 3.0) == 0.0


def test_a_pace_halves_and_grows_back_to_what_is_allowed() -> None:
    pace = Pace()
    pace.limited(100, 0.0, 0.0)
    pace.limited(100, 1.0, 0.5)
    assert pace.rate == 50
    for _ in range(50):
        pace.accepted()
    assert pace.rate == 100


def test_a_pace_halves_once_for_rows_that_were_under_way_together() -> None:
    pace = Pace()
    for now in (1.0, 1.1, 1.2, 1.3):
        pace.limited(100, now, 0.9)
    assert pace.rate == 100
    for now in (3.0, 3.1, 3.2, 3.3):
        pace.limited(100, now, 2.9)
    assert pace.rate == 50
    pace.limited(100, 4.0, 3.5)
    assert pace.rate == 25


GOOD = (
    {"topic": "a.b", "data": '{"x": 1}'},
    {"topic": "a.b", "data": '{"x": 1}'},
    {"topic": "c.d", "data": '{"NaN": "Infinity"}', "type": "t"},
    {"topic": "c.d", "data": "[1, 2]", "type": 'ü"'},
    {"topic": None, "data": '{"ü": "\U0001f600"}'},
    {"topic": "a.b", "data": "1", "id": 'i"1'},
    {"topic": "a.b", "data": "1", "ttl": 0},
)
ODD = (
    {"topic": "a.*", "data": "1"},
    {"topic": ["a"], "data": "1"},
    {"topic": "a.b", "data": '{"x": NaN}'},
    {"topic": "a.b", "data": '{"x": 1}, {"y": 2}'},
    {"topic": "a.b", "data": '{"x": 1'},
    {"topic": "a.b", "data": {"x": 1}},
    {"topic": "a.b", "data": None},
    {"topic": "a.b", "data": "1", "ttl": True},
    {"topic": "a.b", "data": "1", "type": ""},
    {"topic": "a.b", "data": "1", "id": ""},
    {"topic": "a.b", "data": '"' + "x" * 300 + '"'},
    {"topic": "a.b", "data": '"\ud800"'},
)


@pytest.mark.parametrize("ids", ["auto", "content", "column", "position"])
@pytest.mark.parametrize("ttl", [None, 60])
def test_a_chunk_becomes_what_its_rows_become_one_by_one(ids: IdStrategy, ttl: int | None) -> None:
    rng = random.Random(f"{ids} {ttl}")
    for turn in range(150):
        rows = rng.choices((*GOOD, *ODD) if turn % 3 == 0 else GOOD[: turn % 7 + 1], k=8)
        one, all_ = (
            encoder(ids=ids, ttl=ttl, topic="x.y", max_message_bytes=200) for _ in range(2)
        )
        (chunk,) = chunks(rows, 500, 1 << 20)
        messages, refused = [], []
        for place, record in enumerate(records(rows)):
            try:
                messages.append(one.encode(record))
            except (InvalidTopic, InvalidPayload, PayloadTooLarge) as error:
                refused.append((place, str(error)))
        encoded = all_.encode_all(chunk)
        assert list(encoded.messages.one_by_one()) == messages
        assert [(place, str(error)) for place, error in encoded.refused] == refused
        assert sorted([*encoded.places, *(place for place, _ in refused)]) == list(range(8))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_lacks_is_refused_alone_in_a_chunk(number: str) -> None:
    rows = [{"topic": "a.b", "data": data} for data in ("{}", f'{{"x": {number}}}', '{"x": "N I"}')]
    (chunk,) = chunks(rows, 500, 1 << 20)
    encoded = encoder().encode_all(chunk)
    assert list(encoded.places) == [0, 2]
    assert [place for place, _ in encoded.refused] == [1]


def test_more_topics_than_are_remembered_are_encoded_alike() -> None:
    encode = encoder()
    for start in range(0, 30_000, 500):
        topics = [f"user.{number}" for number in range(start, start + 500)]
        nothing = [None] * 500
        found = encode.encode_all(Chunk(topics, nothing, ["1"] * 500, nothing, nothing))
        assert found.messages.topics == topics
    assert len(encode._topics) <= 10_000


def test_chunks_are_bounded_by_rows_and_by_bytes() -> None:
    rows = [{"data": f'"{"x" * 98}"'}] * 10
    assert [len(chunk.data) for chunk in chunks(rows, 4, 1 << 20)] == [4, 4, 2]
    assert [len(chunk.data) for chunk in chunks(rows, 100, 300)] == [3, 3, 3, 1]
    found = list(chunks([pa.RecordBatch.from_pylist(rows)], 100, 320))
    assert max(len(chunk.data) for chunk in found) <= 3
    assert sum(len(chunk.data) for chunk in found) == 10
