from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic
from hanzoai.pubsub.spark.source_config import SourceConfig, refuse, source_config

URL = "http://127.0.0.1:8056"


def config(**options: str) -> SourceConfig:
    return source_config({"url": URL, "topics": "jobs.a", **options})


def test_options_are_read_whatever_their_case() -> None:
    found = source_config(
        {
            "URL": URL,
            "topicspattern": "agent.*.events, chat.**",
            "STARTINGOFFSETS": "Earliest",
            "failondataloss": "FALSE",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "4",
            "types": "token, agent.status",
            "minPollIntervalMs": "250",
            "requestTimeoutMs": "1500",
        }
    )
    assert found.topics == ("agent.*.events", "chat.**")
    assert (found.starting, found.fail_on_data_loss) == ("earliest", False)
    assert (found.max_offsets_per_trigger, found.min_partitions) == (100, 4)
    assert found.types == frozenset({"token", "agent.status"})
    assert (found.poll, found.server.request_timeout) == (0.25, 1.5)


def test_a_config_travels_and_is_the_same_where_it_arrives() -> None:
    found = config(startingOffsets='{"jobs.a": 7}')
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.starting == {"jobs.a": 7}


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("1771840800000", datetime(2026, 2, 23, 10, tzinfo=UTC)),
        ("2026-02-23T10:00:00Z", datetime(2026, 2, 23, 10, tzinfo=UTC)),
        ("2026-02-23T11:00:00+01:00", datetime(2026, 2, 23, 10, tzinfo=UTC)),
        ("2026-02-23 10:00", datetime(2026, 2, 23, 10, tzinfo=UTC)),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601_in_utc(text: str, when: datetime) -> None:
    assert config(startingTimestamp=text).starting_timestamp == when.timestamp() * 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "latest"}, "Did you mean `startingOffsets`"),
        ({"starting_offsets": "latest"}, "Did you mean `startingOffsets`"),
        ({"maxOffsetPerTrigger": "1"}, "Did you mean `maxOffsetsPerTrigger`"),
        ({"token": "s3cret"}, "tokenFile"),
        ({"path": "/x"}, "load() without a path"),
        ({"topicsPattern": "jobs.*"}, "cannot be used together"),
        ({"topics": " , "}, "`topics` is empty"),
        ({"startingOffsets": "newest"}, "`startingOffsets` is not a valid offset"),
        ({"startingOffsets": "{oops"}, "`startingOffsets` is not JSON"),
        ({"startingOffsets": '{"jobs.a": "1"}'}, "no whole number for 'jobs.a'"),
        ({"startingOffsets": '{"jobs.a": ["e", 1]}'}, "no whole number for 'jobs.a'"),
        ({"startingOffsets": '{"jobs.a": -3}'}, "out of range for 'jobs.a'"),
        ({"startingOffsets": '{"jobs.b": 1}'}, "`startingOffsets` names 'jobs.b'"),
        ({"endingOffsets": "earliest"}, "`endingOffsets` is before the first row"),
        ({"endingOffsets": '{"jobs.a": -2}'}, "`endingOffsets` is before the first row"),
        ({"startingTimestamp": "yesterday"}, "`startingTimestamp` is not a time"),
        ({"startingOffsets": '{"jobs.a": ' + "9" * 5_000 + "}"}, "number out of range at line 1"),
        ({"startingTimestamp": "9" * 5_000}, "`startingTimestamp` is before 1973 or out of range"),
        ({"startingTimestamp": "1740307200"}, "Give Unix milliseconds"),
        ({"maxOffsetsPerTrigger": "0"}, "`maxOffsetsPerTrigger` is out of range"),
        ({"minPartitions": "many"}, "`minPartitions` is not a whole number"),
        ({"maxRowsPerPartition": "0"}, "`maxRowsPerPartition` is out of range"),
        ({"pageSize": "501"}, "`pageSize` is out of range"),
        ({"minPollIntervalMs": "1"}, "out of range. Give milliseconds from 50 to 30000"),
        ({"topicForgetMs": "0"}, "`topicForgetMs` is out of range. Give milliseconds from 1000"),
        ({"requestTimeoutMs": "0"}, "`requestTimeoutMs` is out of range. Give milliseconds from 1"),
        ({"retryBackoffMs": "nan"}, "`retryBackoffMs` is NaN, not a number. Give milliseconds"),
        ({"failOnDataLoss": "maybe"}, "`failOnDataLoss`"),
        ({"maxRetries": "-1"}, "`maxRetries` is out of range"),
        ({"batchSize": "5"}, "`batchSize` is unknown"),
    ],
)
def test_a_wrong_option_is_named_as_in_spark(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        config(**options)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_topics_and_patterns_are_checked() -> None:
    with pytest.raises(InvalidTopic, match="Give patterns as topicsPattern"):
        config(topics="jobs.a, jobs.*")
    with pytest.raises(InvalidTopic, match="Use letters, digits"):
        config(topics="jobs.a b")
    with pytest.raises(InvalidTopic, match="Option `topicsPattern`"):
        source_config({"url": URL, "topicsPattern": "jobs.a*"})
    with pytest.raises(InvalidOption, match="`topics` is missing"):
        source_config({"url": URL})


@pytest.mark.parametrize(
    ("options", "kind", "limits", "words"),
    [
        (
            {"endingOffsets": "latest"},
            "stream",
            True,
            "`endingOffsets` is not possible for a stream",
        ),
        ({"endingTimestamp": "1771840800000"}, "stream", True, "`endingTimestamp` is not possible"),
        ({"maxOffsetsPerTrigger": "5"}, "stream", False, "Spark 4.2"),
        (
            {"maxOffsetsPerTrigger": "5"},
            "batch",
            True,
            "`maxOffsetsPerTrigger` is not possible for a batch",
        ),
        ({"startingOffsets": "latest"}, "batch", True, "`startingOffsets` is `latest`"),
        (
            {"startingTimestamp": "1771840800000", "endingTimestamp": "1771840799999"},
            "batch",
            True,
            "`endingTimestamp` is before `startingTimestamp`",
        ),
    ],
)
def test_options_that_do_not_suit_the_query_are_refused(
    options: dict[str, str], kind: Any, limits: bool, words: str
) -> None:
    found = config(**options)
    with pytest.raises(InvalidOption, match=words):
        refuse(found, kind, limits=limits)
