from __future__ import annotations

from pubsub_server.shared.wall_clock import never_back


def test_the_time_does_not_go_back_with_the_clock_of_the_machine() -> None:
    machine = iter([5_000, 5_001, 4_000, 5_000, 5_002])
    wall = never_back(lambda: next(machine), lambda: 0.0)
    assert [wall() for _ in range(5)] == [5_000, 5_001, 5_001, 5_001, 5_002]


def test_the_time_goes_on_at_half_speed_until_a_clock_that_was_set_back_has_caught_up() -> None:
    machine, steady = 10_000, 100.0
    wall = never_back(lambda: machine, lambda: steady)
    assert wall() == 10_000
    machine = 4_000
    assert wall() == 10_000
    found: list[int] = []
    for _ in range(7):
        machine, steady = machine + 2_000, steady + 2
        found.append(wall())
    assert found == [11_000, 12_000, 13_000, 14_000, 14_000, 16_000, 18_000]
    machine, steady = 3_000, steady + 50
    assert wall() == 18_000
