"""The simulator behind docs/scale.md: it agrees with the measurements, and loses nothing."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from statistics import median
from typing import Any

import pytest

from tests.bench import scale, simulator
from tests.bench.__main__ import RESULTS
from tests.bench.capacity import BUSY, Costs, Workload, fit, listeners, plan

COSTS = Costs(
    memory=4.0, kernel=5.0, redis_memory=1.0, idle=1.0, accept=1_000, accept_redis=100,
    publish_turn=300, publish=50, deliver_turn=100, channel=20, receive=10, write=4, deliver=0.2,
    redis_call=100, redis_message=40, redis_listener=4, to_redis=500, from_redis=500,
)  # fmt: skip
WORK = Workload("some", 100_000, 20_000, 3)


def measured() -> dict[str, Any]:
    """Results of the last run of the benchmark."""
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def points(costs: Costs) -> list[dict[str, float]]:
    """Return the results of a benchmark with exactly these costs."""
    found: list[dict[str, float]] = []
    for listening in (1, 2):
        for topics, subscribers in ((1, 1), (1, 10), (1, 100), (50, 1)):
            for burst in (50, 1):
                shape = {
                    "burst": burst,
                    "channels": min(topics, burst) / burst,
                    "writes": (min(topics, burst) * subscribers + 1) / burst,
                    "deliveries": subscribers + 1,
                }
                found.append(
                    {
                        **shape,
                        "listening": listening,
                        "topics": topics,
                        "subscribers": subscribers,
                        "publishing_us": costs.publishing(burst),
                        "delivering_us": costs.delivering(**shape),
                        "redis_us": costs.redis(burst, listening),
                        "redis_in": costs.to_redis,
                        "redis_out": 80 + costs.from_redis * listening,
                    }
                )
    return found


def test_costs_that_were_put_into_points_are_found_in_them_again() -> None:
    single = {
        "kib": COSTS.memory, "redis_kib": COSTS.redis_memory,
        "accept_cpu_us": COSTS.accept, "accept_redis_cpu_us": COSTS.accept_redis,
    }  # fmt: skip
    alone = {"idle_cpu_us": COSTS.idle}
    held = {"kernel_kib": COSTS.kernel * 2}
    connections = {
        "held": held,
        "single": {"baselines": {"Redis": {"median": single}, "memory": {"median": alone}}},
    }
    found = fit({"crossing": {"points": points(COSTS)}, "connections": connections})
    assert astuple(found) == pytest.approx(astuple(COSTS))


def test_the_model_agrees_with_what_was_measured() -> None:
    results = measured()
    ratios = [calculated / found for _, found, calculated in scale.checks(results, fit(results))]
    assert median(ratios) == pytest.approx(1, abs=0.1)
    near = [ratio for ratio in ratios if 0.7 <= ratio <= 1.4]
    assert len(near) >= 0.85 * len(ratios)
    assert all(0.25 <= ratio <= 2 for ratio in ratios)


def test_no_message_is_lost_or_made_up_on_its_way() -> None:
    found = simulator.run(WORK, COSTS, 12, 0.2, seed=1)
    assert found.published == 4_000 == sum(node.published for node in found.nodes)
    assert found.delivered == 12_000 == sum(node.delivered for node in found.nodes)
    assert found.crossed == sum(node.received for node in found.nodes)
    assert found.published <= found.crossed <= found.delivered


def test_the_same_seed_gives_the_same_traffic() -> None:
    one, two, other = (simulator.run(WORK, COSTS, 12, 0.1, seed) for seed in (1, 1, 2))
    assert one == two != other


def test_as_many_nodes_receive_a_message_as_chance_says() -> None:
    found = simulator.run(WORK, COSTS, 12, 0.2, seed=1)
    assert found.crossed / found.published == pytest.approx(listeners(12, 3), rel=0.02)


def test_traffic_takes_the_cores_that_were_planned_where_nothing_comes_at_once() -> None:
    # Costs so small that each message is processed before the next one arrives.
    costs = replace(COSTS, publish_turn=3, publish=0.5, deliver_turn=1, channel=0.2, receive=0.1)
    needs = plan(WORK, costs, per_node=50_000)
    found = simulator.run(WORK, costs, needs.nodes, 0.2, seed=1)
    assert found.cores == pytest.approx(needs.cores_publishing + needs.cores_delivering, rel=0.05)
    assert found.redis_busy / found.seconds == pytest.approx(needs.cores_redis, rel=0.05)


def test_what_comes_while_a_node_is_busy_is_handled_at_once() -> None:
    few = simulator.run(WORK, COSTS, 40, 0.2, seed=1)
    many = simulator.run(WORK, COSTS, 12, 0.2, seed=1)
    assert 1 <= few.burst < many.burst
    assert few.late[1] < many.late[1]


def test_nodes_that_cannot_even_ping_are_refused() -> None:
    with pytest.raises(ValueError, match="do not even keep"):
        simulator.run(replace(WORK, connections=2_000_000), COSTS, 1, 0.1, seed=1)


def test_a_plan_leaves_room_on_every_node_and_shard() -> None:
    for work in scale.WORKLOADS:
        needs = plan(work, COSTS, per_node=50_000)
        busy = needs.cores_idle + needs.cores_publishing + needs.cores_delivering
        assert busy <= BUSY * needs.nodes
        assert work.connections <= 50_000 * needs.nodes
        assert needs.cores_redis <= BUSY * needs.shards


def test_every_client_is_back_once_or_still_out() -> None:
    for clients, nodes in ((1_000, 2), (20_000, 2), (20_000, 19)):
        found = simulator.storm(clients, nodes, 1_500, seed=1, horizon=60)
        assert len(found.back) + found.out == clients
        assert found.attempts >= len(found.back) + found.given_up - found.out
        assert list(found.back) == sorted(found.back)


def test_more_nodes_accept_clients_again_sooner_and_no_client_gives_up() -> None:
    two, many = (simulator.storm(5_000, nodes, 1_000, seed=1) for nodes in (2, 20))
    assert many.back[-1] < two.back[-1]
    assert (many.given_up, many.out, many.attempts) == (0, 0, 5_000)


def test_clients_that_a_drain_disconnects_slowly_hardly_wait() -> None:
    spread = simulator.Manners(spread=30)
    at_once = simulator.storm(20_000, 19, 1_000, seed=1)
    slowly = simulator.storm(20_000, 19, 1_000, seed=1, manners=spread)
    assert slowly.longest < at_once.longest / 5


def test_clients_whose_timeout_is_shorter_than_the_queue_retry_endlessly() -> None:
    found = simulator.storm(50_000, 1, 2_000, seed=1, horizon=60)
    assert found.out > 0
    assert found.given_up > found.clients
