from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster.driver import Driver
from tests.spark.cluster.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    made = Standalone(tmp_path_factory.mktemp("cluster"))
    try:
        asyncio.run(made.start())
        yield made
    finally:
        made.end()


@pytest.fixture(scope="package")
def drivers(
    cluster: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Mapping[str, str]], Driver]]:
    """Create drivers with given settings; only one at a time has the cluster's cores."""
    made: dict[tuple[tuple[str, str], ...], Driver] = {}

    def driver(more: Mapping[str, str]) -> Driver:
        key = tuple(sorted(more.items()))
        for each, other in made.items():
            if each != key:
                other.end()
        if key not in made:
            made[key] = Driver(cluster, tmp_path_factory.mktemp("driver"), more)
        return made[key]

    yield driver
    for each in made.values():
        each.end()
