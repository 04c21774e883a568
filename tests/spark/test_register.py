"""`register` with different versions of Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark import register


def spark(error: Exception | None) -> Any:
    def take(source: type) -> None:
        if error is not None:
            raise error

    return SimpleNamespace(dataSource=SimpleNamespace(register=take))


def test_register_does_nothing_if_spark_has_found_the_source() -> None:
    register(spark(RuntimeError("[DATA_SOURCE_ALREADY_EXISTS] Data source 'hanzo-pubsub' …")))


def test_other_errors_of_spark_are_passed_on() -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        register(spark(RuntimeError("the session is stopped")))


def test_a_spark_without_python_data_sources_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidOption, match=r"Spark 4\.0 or later, or publish with foreach"):
        register(SimpleNamespace())
