"""`PageCursor`: the place in a log that is read page by page, backwards or forwards; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import Unsupported
from hanzoai.pubsub.http import calls as rest_calls

if TYPE_CHECKING:
    from hanzoai.pubsub.http.calls import Call, Page


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The place of the next page.

    Attributes:
        topic: A topic without wildcards.
        since: Only newer messages, Unix milliseconds.
        before: Read backwards from the message with this id.
        before_seq: Or, more exactly, from this position; without both, from the newest message.
        after: Read forwards from this position instead.
        newest: Position or id of the newest entry of the last page.
        has_fallen: The positions have fallen.
    """

    topic: str
    since: int | None = None
    before: str | None = None
    before_seq: int | None = None
    after: int | None = None
    newest: int | str | None = None
    has_fallen: bool = False

    def call(self, limit: int) -> Call[Page]:
        """The request for the next page, of 1 to 500 messages."""
        return rest_calls.history(
            self.topic,
            since=self.since,
            before=self.before,
            before_seq=self.before_seq,
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
        ids, positions = page.ids, page.positions
        position = positions[-1] if positions else None
        newest = position if position is not None else ids[-1] if ids else None
        if newest is None or newest == (self.after if self.newest is None else self.newest):
            return None
        at = self.before_seq if self.after is None else self.after
        falls = position is not None and at is not None and position < at
        if self.after is None:
            if self.before is None and at is not None and not falls:
                raise Unsupported(
                    "The server cannot end a page before a position.",
                    remedy="Pass the id of a message as `before`.",
                    topic=self.topic,
                    field="before",
                )
            # Several senders can use one id; only some servers read the position.
            return replace(
                self,
                before=ids[0] if ids else None,
                before_seq=positions[0] if positions else None,
                newest=newest,
            )
        # Positions fall once if the log has restarted.
        if falls and self.has_fallen:
            raise Unsupported(
                "Servers with different positions answer in turn.",
                remedy="Let the load balancer send each client to one node.",
                topic=self.topic,
            )
        return replace(
            self,
            after=self.after if position is None else position,
            newest=newest,
            has_fallen=self.has_fallen or falls,
        )
