"""What a micro-batch reads: a function of its offsets, of where topics stand, and of nothing else.

The offset of a topic is the position that was read last, as `after` is everywhere in this service:
a range is behind its start, and its end is part of it. Spark writes down the end of a batch and not
its start, so an end also says where reading begins for topics that the start does not have, or
whose rows before are gone: the batch reads the same rows again after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from hanzoai.pubsub.spark.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BEGIN: Final = "@from"
"""Where reading begins, beside the topics of an offset: no topic has this name."""


class Standing(NamedTuple):
    """The positions of the log of a topic.

    Attributes:
        first: Position of the oldest message that is retained; `last + 1` where none is.
        last: Newest position that was ever given; 0 where there is no log.
        at: Where it was asked for a time: the first message that is not older, or `last + 1`.
    """

    first: int
    last: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a stream.

    Attributes:
        read: Position that was read last, by topic.
        begin: Position that the batch which ends here begins behind, of the topics whose start does
            not say it.
    """

    read: Mapping[str, int] = field(default_factory=dict[str, int])
    begin: Mapping[str, int] = field(default_factory=dict[str, int])

    def as_json(self) -> dict[str, object]:
        """As Spark keeps it: it compares texts, so keys are sorted."""
        found: dict[str, object] = {}
        if self.begin:
            found[BEGIN] = dict(sorted(self.begin.items()))
        return {**found, **dict(sorted(self.read.items()))}

    @property
    def nothing_read(self) -> bool:
        """Whether it is that of a query which has read nothing yet."""
        return self.read == self.begin


def read_offset(given: Mapping[str, object]) -> Offset:
    """An offset from what Spark kept."""
    read = {topic: _position(place) for topic, place in given.items() if topic != BEGIN}
    begin = cast("Mapping[str, object]", given.get(BEGIN, {}))
    return Offset(read, {topic: _position(place) for topic, place in begin.items()})


def _position(place: object) -> int:
    if not isinstance(place, int):
        raise TypeError(
            f"The checkpoint contains an offset of another source: {type(place).__name__}"
        )
    return place


UNKNOWN: Final = -1
"""Instead of `after`: before the first row that is retained when the task reads."""


class Range(NamedTuple):
    """Positions of a topic, behind `after` up to and including `last`."""

    topic: str
    after: int
    last: int


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a batch goes.

    Attributes:
        end: Where it ends; its start itself where there is nothing to read.
        losses: Rows that are gone between its start and what is retained.
        turn: The topic that got the last odd row, for the next one.
    """

    end: Offset
    losses: tuple[Loss, ...] = ()
    turn: str = ""


def advance(
    start: Offset,
    standings: Mapping[str, Standing],
    *,
    most: int | None = None,
    target: Mapping[str, int] | None = None,
    forgotten: Iterable[str] = (),
    turn: str = "",
) -> Advance:
    """How far the next batch goes.

    Args:
        start: Where it begins.
        standings: The positions of the topics.
        most: Rows of the batch, in fair shares; None for all there are.
        target: Positions that no topic goes beyond; topics that it lacks stay where they are.
        forgotten: Topics that are gone for long; they leave with the next change.
        turn: Of the batch before.
    """
    read = dict(start.read)
    begin = dict(start.begin) if start.nothing_read else {}
    losses: list[Loss] = []
    lows: dict[str, int] = {}
    backlog: dict[str, int] = {}
    for topic, standing in sorted(standings.items()):
        high = standing.last if target is None else min(standing.last, target.get(topic, 0))
        known = read.get(topic)
        if standing.last == 0 or (target is not None and topic not in target):
            continue
        if known is None:
            low = standing.first - 1
        else:
            loss = missing(topic, known, standing)
            if loss is None or (high <= known and loss.first <= loss.last):
                low = known
            else:
                losses.append(loss)
                low = loss.last
        if target is not None and low > high and (known is None or known < high):
            low = high
        if low != known:
            read[topic] = begin[topic] = lows[topic] = low
        if high > low:
            backlog[topic] = high - low
            lows[topic] = low
    shares, turn = share_out(backlog, most, turn)
    for topic, rows in shares.items():
        read[topic] = lows[topic] + rows
    if read == start.read:
        return Advance(start, tuple(losses), turn)
    for topic in forgotten:
        read.pop(topic, None)
        begin.pop(topic, None)
    return Advance(Offset(read, begin), tuple(losses), turn)


def missing(topic: str, known: int, standing: Standing) -> Loss | None:
    """What is lost after a position; None if no loss is known.

    A log that does not exist is not a loss yet: nothing may have been published.
    """
    if standing.last == 0:
        return None
    if standing.last < known:
        return Loss(topic, known + 1, standing.last)
    if standing.first > known + 1:
        return Loss(topic, known + 1, standing.first - 1)
    return None


def share_out(
    backlog: Mapping[str, int], most: int | None, turn: str = ""
) -> tuple[dict[str, int], str]:
    """Shares of a limit: small backlogs get all they have, the others as many as each other.

    Args:
        backlog: Rows by topic.
        most: Rows in all; None for no limit.
        turn: The topic behind which odd rows are given.

    Returns:
        Rows by topic, none with 0, and the topic that got the last odd row.
    """
    if most is None or sum(backlog.values()) <= most:
        return dict(backlog), turn
    shares: dict[str, int] = {}
    left = most
    waiting = sorted(backlog, key=lambda topic: (backlog[topic], topic))
    for place, topic in enumerate(waiting):
        each = left // (len(waiting) - place)
        if backlog[topic] > each:
            rest = sorted(waiting[place:])
            odd = left - each * len(rest)
            behind = [name for name in rest if name > turn]
            order = behind + rest[: len(rest) - len(behind)]
            for name in rest:
                shares[name] = each
            for name in order[:odd]:
                shares[name] += 1
                turn = name
            break
        shares[topic] = backlog[topic]
        left -= backlog[topic]
    return {topic: rows for topic, rows in sorted(shares.items()) if rows}, turn


def ranges(start: Offset, end: Offset) -> list[Range]:
    """What a batch reads, by topic.

    A topic of which neither says where reading begins is read from its first retained row.
    """
    found: list[Range] = []
    for topic, last in sorted(end.read.items()):
        after = end.begin.get(topic, start.read.get(topic, UNKNOWN))
        if after < last:
            found.append(Range(topic, after, last))
    return found


def split(found: Iterable[Range], *, tasks: int, most: int) -> list[tuple[Range, ...]]:
    """Cut ranges into tasks of about equal size. The same ranges are always cut alike.

    A range that begins at an unknown place is one task.

    Args:
        found: The ranges.
        tasks: As many at least, where there are as many rows.
        most: Rows of a task.
    """
    dense = [each for each in found if each.after != UNKNOWN]
    whole = [(each,) for each in found if each.after == UNKNOWN]
    total = sum(each.last - each.after for each in dense)
    if not total:
        return list(whole)
    count = max(min(tasks, total), -(-total // most))
    parts: list[tuple[Range, ...]] = []
    part: list[Range] = []
    done = 0
    for each in dense:
        after = each.after
        while after < each.last:
            # Where the task in hand ends, counted in rows of the whole batch.
            border = (len(parts) + 1) * total // count
            last = min(each.last, after + border - done)
            part.append(Range(each.topic, after, last))
            done += last - after
            after = last
            if done == border:
                parts.append(tuple(part))
                part = []
    return [*parts, *whole]
