"""The output of the program: text on a terminal, otherwise JSON lines.

Standard output contains the result, standard error everything else. The format of each is decided
separately: `hanzo-pubsub history a.b | jq` gives JSON to jq and readable errors to the person.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from hanzoai.pubsub.log_text import ESCAPED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hanzoai.pubsub.errors import PubSubError

Json = Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None
Part = str | tuple[str, str]
"""A piece of a line: text, or text with a style of rich."""

_JSON_ESCAPED: Final = {code: f"\\u{code:04x}" for code in ESCAPED if code >= 0x7F}
"""What affects a terminal, as JSON writes it; JSON already escapes characters below 0x20."""

_ERASE: Final = "\r\x1b[2K"
"""Back to the start of the line of a terminal, without its text."""

_REMEDIES: Final = {
    "insecure_url": "Use wss:// or https://, or pass --allow-insecure on a trusted network.",
    "token_expired": "Set HANZO_PUBSUB_TOKEN to a new token, or pass --token-file and renew the "
    "token in the file. For a development server: hanzo-pubsub token --user NAME.",
}
"""Remedies for which the error names an option of the SDK."""

_FLAGS: Final = {"`rest_url`": "--rest-url", "`url`": "--url", "`before`": "--before"}
"""Options of the SDK that other remedies name, and their flags."""


def printable(text: str) -> str:
    """Foreign text without control characters and changes of direction, which affect a terminal."""
    return text.replace("\n", "\\n").translate(ESCAPED)


def encode(value: Json) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Output:
    """Standard output and standard error of one command.

    Args:
        as_json: JSON even on a terminal.
        out: Stream for results; default standard output.
        err: Stream for everything else; default standard error.
    """

    def __init__(
        self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.pretty = not as_json and self.out.isatty()
        self.pretty_errors = not as_json and self.err.isatty()
        self._consoles: dict[bool, Console | None] = {}
        self._has_progress = False

    def record(self, value: Json) -> None:
        """Write one result as a line of JSON, and flush."""
        self._erase()
        _write_json(self.out, value)

    def line(self, *parts: Part, error: bool = False) -> None:
        """Write a line of text, made safe for the terminal."""
        self._erase()
        stream = self.err if error else self.out
        console = self._console(error)
        if console is None:
            stream.write("".join(_text(part) for part in parts) + "\n")
        else:
            console.print(_styled(parts), soft_wrap=True)
        stream.flush()

    def item(self, head: Sequence[Part], *parts: Part, error: bool = False) -> None:
        """Write a heading and a text that is wrapped beside it."""
        self._erase()
        console = self._console(error)
        if console is None:
            self.line(*head, *parts, error=error)
            return
        from rich.table import Table

        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(_styled(head), _styled(parts))
        console.print(grid)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Part]]) -> None:
        """Write a table; in plain columns if rich is not installed."""
        console = self._console(error=False)
        if console is None:
            texts = [list(columns), *([_text(cell) for cell in row] for row in rows)]
            widths = [max(len(text[i]) for text in texts) for i in range(len(columns))]
            for text in texts:
                cells = (cell.ljust(width) for cell, width in zip(text, widths, strict=True))
                self.out.write("  ".join(cells).rstrip() + "\n")
            self.out.flush()
            return
        from rich import box
        from rich.table import Table

        table = Table(*columns, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*(_styled([cell]) for cell in row))
        console.print(table)

    def progress(self, text: str) -> None:
        """Show a text on the terminal until the next output. Elsewhere, do nothing."""
        if self.pretty_errors and os.environ.get("TERM") != "dumb":
            # A text that wraps could not be erased.
            columns = shutil.get_terminal_size().columns
            self.err.write(_ERASE + printable(text)[: columns - 1])
            self.err.flush()
            self._has_progress = True

    def note(self, event: str, message: str, *, style: str = "dim", **fields: Any) -> None:
        """Write a note to standard error.

        Args:
            event: Its name for programs: `error`, `warning`, `info`, `gap`, `state`, ...
            message: Description of what happened.
            style: Style of rich for text output.
            **fields: Further fields of the JSON output.
        """
        if self.pretty_errors:
            self.item([(f"{event}: ", f"bold {style}")], message, error=True)
        else:
            _write_json(self.err, {"event": event, "message": message, **fields})

    def error(self, error: PubSubError, **fields: Any) -> None:
        """Write an error in one line: code, message, remedy, and the page about the code."""
        remedy = _REMEDIES.get(error.code, error.remedy)
        for option, flag in _FLAGS.items():
            remedy = remedy.replace(option, flag)
        if self.pretty_errors:
            where = f" (line {fields['line']})" if "line" in fields else ""
            stop = "" if error.message.endswith((".", "!", "?")) else "."
            self.item(
                [(f"{error.code}{where}: ", "bold red")],
                f"{error.message}{stop}",
                (f" {remedy}", "dim"),
                # The page has nothing to add about wrong arguments.
                (f" See {error.docs}" if error.docs and error.code != "usage" else "", "dim"),
                error=True,
            )
            return
        known = {"topic": error.topic, "field": error.field, "docs": error.docs or None, **fields}
        self.note(
            "error",
            error.message,
            code=error.code,
            remedy=remedy,
            **{name: value for name, value in known.items() if value is not None},
        )

    def _erase(self) -> None:
        if self._has_progress:
            self._has_progress = False
            self.err.write(_ERASE)
            self.err.flush()

    def _console(self, error: bool) -> Console | None:
        """The console of rich for a terminal; None if rich is not installed."""
        if error not in self._consoles:
            stream, wanted = (self.err, self.pretty_errors) if error else (self.out, self.pretty)
            console: Console | None = None
            if wanted and os.environ.get("TERM") != "dumb":
                try:
                    from rich.console import Console as RichConsole
                except ImportError:
                    pass
                else:
                    console = RichConsole(file=stream, highlight=False, emoji=False, markup=False)
            self._consoles[error] = console
        return self._consoles[error]


def json_line(stream: TextIO, value: Json) -> str:
    """A line of JSON for this stream: for a terminal, without characters that affect it."""
    line = encode(value) + "\n"
    return line.translate(_JSON_ESCAPED) if stream.isatty() else line


def _write_json(stream: TextIO, value: Json) -> None:
    stream.write(json_line(stream, value))
    stream.flush()


def _styled(parts: Sequence[Part]) -> Text:
    from rich.text import Text as RichText

    return RichText.assemble(
        *((_text(part), part[1] if isinstance(part, tuple) else "") for part in parts)
    )


def _text(part: Part) -> str:
    return printable(part[0] if isinstance(part, tuple) else part)
