"""Human-readable and machine-readable output."""

from __future__ import annotations

import io
import json

import pytest

from hanzoai.pubsub.cli.exits import Exit, exit_for
from hanzoai.pubsub.cli.output import Output, encode, printable
from hanzoai.pubsub.errors import PubSubError, ReplyError, from_code
from hanzoai.pubsub.generated.errors import CODES


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stream_that_is_no_terminal_gets_json() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(out=out, err=err)
    output.record({"a": "ü"})
    output.error(from_code("forbidden", topic="a.b"), line=3)
    assert out.getvalue() == '{"a":"ü"}\n'
    found = json.loads(err.getvalue())
    assert (found["event"], found["code"], found["topic"], found["line"]) == (
        *("error", "forbidden", "a.b", 3),
    )
    assert found["remedy"]


@pytest.mark.parametrize(
    ("code", "option"),
    [("insecure_url", "--allow-insecure"), ("token_expired", "--token-file")],
)
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_remedy_names_the_option_of_the_program(
    code: str, option: str, stream: type[io.StringIO]
) -> None:
    err = stream()
    Output(out=io.StringIO(), err=err).error(from_code(code))
    assert option in err.getvalue()


def test_wrong_arguments_on_a_terminal_name_no_page() -> None:
    err = Terminal()
    output = Output(out=io.StringIO(), err=err)
    output.error(from_code("usage", "There is no command 'x'."))
    assert "docs/errors" not in err.getvalue()
    output.error(from_code("forbidden"))
    assert "https://pubsub.hanzo.ai/docs/errors/#forbidden" in err.getvalue()


def test_each_stream_is_judged_apart() -> None:
    output = Output(out=io.StringIO(), err=Terminal())
    assert (output.pretty, output.pretty_errors) == (False, True)
    output = Output(out=Terminal(), err=Terminal(), as_json=True)
    assert (output.pretty, output.pretty_errors) == (False, False)


@pytest.mark.parametrize("rich", [True, False])
def test_a_terminal_gets_lines_and_tables_with_rich_and_without(
    rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color" if rich else "dumb")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = Terminal(), Terminal()
    output = Output(out=out, err=err)
    output.line(("name", "bold"), " [red]markup[/red] :smile:")
    output.table(("who", "what"), [[("alice", "green"), "types"]])
    output.error(PubSubError("usage", "Wrong.", remedy="Do better."))
    assert ("\x1b[" in out.getvalue()) is rich
    assert "[red]markup[/red] :smile:" in out.getvalue(), "text is no markup"
    assert "alice" in out.getvalue()
    assert "Wrong." in err.getvalue()
    assert "Do better." in err.getvalue()


def test_a_full_stop_separates_an_error_from_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    err = Terminal()
    output = Output(out=io.StringIO(), err=err)
    for message in ("--ttl is not a number", "--ttl is not a number."):
        output.error(PubSubError("usage", message, remedy="See --help."))
    first, second = err.getvalue().splitlines()
    assert first == second
    assert "not a number. See --help." in first


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        (
            "`rest_url` was derived from `url`; pass `rest_url` (HANZO_PUBSUB_REST_URL).",
            "--rest-url was derived from --url; pass --rest-url (HANZO_PUBSUB_REST_URL).",
        ),
        ("Pass the id of a message as `before`.", "Pass the id of a message as --before."),
    ],
)
def test_a_remedy_names_flags_instead_of_options_of_the_sdk(remedy: str, expected: str) -> None:
    err = io.StringIO()
    Output(out=io.StringIO(), err=err).error(PubSubError("not_found", "Gone.", remedy=remedy))
    assert json.loads(err.getvalue())["remedy"] == expected


def test_no_color_removes_colours_and_keeps_bold_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    Output(out=out).line(("name", "bold green"))
    assert out.getvalue() == "\x1b[1mname\x1b[0m\n"


def test_text_of_others_cannot_steer_the_terminal() -> None:
    evil = "a\x1b]0;title\x07b\x9b2Jc\rd\u202ee\x7f"
    assert printable(evil) == "a\\x1b]0;title\\x07b\\x9b2Jc\\x0dd\\u202ee\\x7f"
    out = Terminal()
    Output(out=out).line(evil)
    assert "\x1b]" not in out.getvalue()
    assert printable("two\nlines") == "two\\nlines"
    assert printable("ünï✓ 日本") == "ünï✓ 日本"


def test_json_on_a_terminal_has_no_character_that_affects_it() -> None:
    evil = {"data": "a\x1b]0;title\x07b\x9b2Jc\rd\u202ee\x7fü✓"}
    out, err, pipe = Terminal(), Terminal(), io.StringIO()
    output = Output(out=out, err=err, as_json=True)
    output.record(evil)
    output.note("warning", evil["data"])
    for text in (out.getvalue(), err.getvalue()):
        assert text.removesuffix("\n").isprintable()
        assert "\\u009b2Jc" in text
        assert "ü✓" in text
    assert json.loads(out.getvalue()) == evil
    Output(out=pipe, as_json=True).record(evil)
    assert pipe.getvalue() == encode(evil) + "\n"


def test_json_is_one_line_whatever_the_text() -> None:
    assert encode("a\nb\u2028c").count("\n") == 0


def test_every_error_code_has_an_exit_code() -> None:
    for code in CODES:
        assert exit_for(PubSubError(code)) not in (
            Exit.OK,
            Exit.GAP,
            Exit.INTERRUPTED,
            Exit.TERMINATED,
        )
    assert exit_for(PubSubError("token_expired")) == Exit.AUTH
    assert exit_for(PubSubError("something of a later server")) == Exit.FAILED


def test_an_error_of_a_responder_fails_whatever_its_code() -> None:
    assert exit_for(ReplyError("no", code="forbidden")) == Exit.FAILED
