"""Plans micro-batches, as a pure function of offsets and topic positions.

The offset of a topic is the last position read, like `after` everywhere in this service: a range
excludes its start and includes its end. Spark stores the end of a batch, not its start. An end
therefore also contains the start of topics that the start offset lacks, or whose earlier rows are
lost: after a restart, the batch reads the same rows again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BEGIN: Final = "@from"
"""Key of the start positions beside the topics of an offset: no topic has this name."""

SOURCE: Final = "@source"
"""Key of the name of this source, by which it recognizes its own offsets."""
NAME: Final = "hanzo-pubsub"
"""Name of this source."""

_OF_OTHERS: Final = (frozenset({"logOffset"}), frozenset({"offset", "timestamp"}))
"""Keys of offsets of Spark's file and rate sources, which look like topics and positions."""


class Standing(NamedTuple):
    """The positions of the log of a topic.

    Attributes:
        first: Position of the oldest retained message; `last + 1` if there is none.
        last: Newest position ever assigned; 0 if there is no log.
        at: For a requested time: the first message that is not older, or `last + 1`.
    """

    first: int
    last: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a stream.

    Attributes:
        read: Last position read, by topic.
        begin: Position after which the batch that ends here begins, for topics that its start
            offset lacks.
    """

    read: Mapping[str, int] = field(default_factory=dict[str, int])
    begin: Mapping[str, int] = field(default_factory=dict[str, int])

    def as_json(self) -> dict[str, object]:
        """Return the text for Spark, which compares texts: keys are sorted."""
        found: dict[str, object] = {}
        if self.begin:
            found[BEGIN] = dict(sorted(self.begin.items()))
        return {**found, SOURCE: NAME, **dict(sorted(self.read.items()))}

    @property
    def nothing_read(self) -> bool:
        """Whether the query has not read anything yet."""
        return self.read == self.begin


def read_offset(given: object) -> Offset:
    """Read an offset that Spark stored.

    Raises:
        InvalidOption: It is an offset of another source.
    """
    if isinstance(given, dict):
        read = cast("dict[str, Any]", given).copy()
        begin = read.pop(BEGIN, {})
        # Earlier offsets of this source do not name it.
        name = read.pop(SOURCE, None if read.keys() in _OF_OTHERS else NAME)
        if name == NAME and isinstance(begin, dict):
            begin = cast("dict[str, Any]", begin)
            # A bool is an int, but not a position.
            if {int}.issuperset(map(type, (*read.values(), *begin.values()))):
                return Offset(read, begin)
    raise InvalidOption(
        "The checkpoint contains an offset of another source.",
        remedy="Give each query its own checkpointLocation.",
        field="checkpointLocation",
    )


UNKNOWN: Final = -1
"""Value of `after`: before the first row that is retained when the task reads."""


class Range(NamedTuple):
    """Positions of a topic, after `after` up to and including `last`."""

    topic: str
    after: int
    last: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The end of a batch.

    Attributes:
        end: Its end; equal to its start if there is nothing to read.
        losses: Lost rows between its start and the retained rows.
        turn: Topic that received the last leftover row, for the next batch.
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
    """Plan the next batch.

    Args:
        start: Its start.
        standings: Positions of the topics.
        most: Maximum rows of the batch, in fair shares; None for all rows.
        target: Maximum position by topic; other topics keep their position.
        forgotten: Topics that ended long ago, to remove.
        turn: `turn` of the previous batch.
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
    # A change of its own: otherwise, the next log of such a topic would be a loss.
    for topic in forgotten:
        read.pop(topic, None)
        begin.pop(topic, None)
    if read == start.read:
        return Advance(start, tuple(losses), turn)
    return Advance(Offset(read, begin), tuple(losses), turn)


def missing(topic: str, known: int, standing: Standing) -> Loss | None:
    """Return the loss after a position; None if no loss is known.

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
    """Share a limit: small backlogs are read whole, all others get equal shares.

    Args:
        backlog: Rows by topic.
        most: Total rows; None for no limit.
        turn: Topic after which leftover rows are assigned.

    Returns:
        Rows by topic, without zeros, and the topic that received the last leftover row.
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
    """Return the ranges of a batch, by topic.

    If neither offset has the start of a topic, it is read from its first retained row.
    """
    found: list[Range] = []
    for topic, last in sorted(end.read.items()):
        after = end.begin.get(topic, start.read.get(topic, UNKNOWN))
        if after < last:
            found.append(Range(topic, after, last))
    return found


def split(found: Iterable[Range], *, tasks: int, most: int) -> list[tuple[Range, ...]]:
    """Split ranges into tasks of about equal size. Equal ranges give equal tasks.

    A range with an unknown start is one task.

    Args:
        found: The ranges.
        tasks: Minimum number of tasks, if there are enough rows.
        most: Maximum rows of a task.
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
            # End of the current task, counted in rows of the whole batch.
            border = (len(parts) + 1) * total // count
            last = min(each.last, after + border - done)
            part.append(Range(each.topic, after, last))
            done += last - after
            after = last
            if done == border:
                parts.append(tuple(part))
                part = []
    return [*parts, *whole]
