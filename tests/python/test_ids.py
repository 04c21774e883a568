from __future__ import annotations

import re
import threading

from hanzoai.pubsub.wire.ids import IdMaker, message_id

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def number(ulid: str) -> int:
    value = 0
    for character in ulid:
        value = value * 32 + CROCKFORD.index(character)
    return value


def test_an_id_is_msg_and_a_ulid() -> None:
    assert re.fullmatch(r"msg_[0-7][0-9A-HJKMNP-TV-Z]{25}", message_id())


def test_a_ulid_carries_the_milliseconds_of_its_making() -> None:
    maker = IdMaker(wall_ns=lambda: 1_469_918_176_385_000_000)
    assert number(maker.ulid()) >> 80 == 1_469_918_176_385


def test_the_published_example_of_the_ulid_specification_is_reproduced() -> None:
    random = (number("01ARZ3NDEKTSV4RRFFQ69G5FAV") & (1 << 80) - 1).to_bytes(10, "big")
    maker = IdMaker(wall_ns=lambda: 1_469_922_850_259_000_000, random=lambda count: random[:count])
    assert maker.ulid() == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_ids_of_one_millisecond_count_up() -> None:
    maker = IdMaker(wall_ns=lambda: 7_000_000)
    made = [maker.ulid() for _ in range(1_000)]
    assert made == sorted(set(made))
    assert number(made[-1]) - number(made[0]) == 999


def test_ids_keep_increasing_when_the_clock_goes_back() -> None:
    times = iter([1_000, 2_000, 1_500, 2_001])
    maker = IdMaker(wall_ns=lambda: next(times) * 1_000_000)
    made = [maker.ulid() for _ in range(4)]
    assert made == sorted(set(made))


def test_a_full_random_part_carries_into_the_time() -> None:
    maker = IdMaker(wall_ns=lambda: 7_000_000, random=lambda count: b"\xff" * count)
    first, second = maker.ulid(), maker.ulid()
    assert second > first
    assert number(second) >> 80 == 8


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []

    def make() -> None:
        made.extend([message_id() for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(set(made)) == 16_000


def test_a_forked_process_does_not_continue_from_its_parents_last_id() -> None:
    maker = IdMaker(wall_ns=lambda: 7_000_000)
    before = maker.message_id()
    maker.renew()
    after = maker.message_id()
    assert after[:14] == before[:14]
    assert after[14:28] != before[14:28]
