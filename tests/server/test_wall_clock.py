from __future__ import annotations

from pubsub_server.shared.wall_clock import never_back


def test_the_time_does_not_advance_while_the_clock_of_the_machine_is_set_back() -> None:
    machine = iter([5_000, 5_001, 4_000, 5_000, 5_002])
    wall = never_back(lambda: next(machine))
    assert [wall() for _ in range(5)] == [5_000, 5_001, 5_001, 5_001, 5_002]
