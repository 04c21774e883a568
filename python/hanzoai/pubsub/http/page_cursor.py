"""`PageCursor`: the place in a log that is read page by page, backwards or forwards; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import Unsupported
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.calls import Place

if TYPE_CHECKING:
    from hanzoai.pubsub.http.calls import Call, Page


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The place of the next page.

    Attributes:
        topic: A topic without wildcards.
        since: Only newer messages, Unix milliseconds.
        before: Read backwards from this place; without a place, from the newest message.
        after: Read forwards from this position instead.
        newest: Position or id of the newest entry of the last page.
        has_fallen: The positions have fallen.
    """

    topic: str
    since: int | None = None
    before: Place = Place()  # noqa: RUF009  # immutable
    after: int | None = None
    newest: int | str | None = None
    has_fallen: bool = False

    def call(self, limit: int) -> Call[Page]:
        """The request for the next page, of 1 to 500 messages."""
        return rest_calls.history(
            self.topic,
            since=self.since,
            before=self.before.id,
            before_seq=self.before.seq,
            after=self.after,
            limit=limit,
        )

    def beyond(self, page: Page) -> PageCursor | None:
        """The cursor beyond a page; None if the page does not move it.

        Such a page ends the reading: it is empty, or the peer ignores the place and sends a page
        again.

        Raises:
            Unsupported: The server cannot end a page before a position; or the positions fall a
                second time, because servers with different positions answer in turn.
        """
        if page.ends is None:
            return None
        oldest, (id, seq) = page.ends
        before, after = self.before, self.after
        newest = id if seq is None else seq
        if newest == (after if self.newest is None else self.newest):
            return None
        at = before.seq if after is None else after
        falls = seq is not None and at is not None and seq < at
        if after is None:
            if before.id is None and at is not None and not falls:
                raise Unsupported(
                    "The server cannot end a page before a position.",
                    remedy="Pass the id of a message as `before`.",
                    topic=self.topic,
                    field="before",
                )
            # Several senders can use one id; only some servers read the position.
            return replace(self, before=oldest, newest=newest)
        # Positions fall once if the log has restarted.
        if falls and self.has_fallen:
            raise Unsupported(
                "Servers with different positions answer in turn.",
                remedy="Let the load balancer send each client to one node.",
                topic=self.topic,
            )
        has_fallen = self.has_fallen or falls
        position = after if seq is None else seq
        return replace(self, after=position, newest=newest, has_fallen=has_fallen)
