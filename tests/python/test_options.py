from __future__ import annotations

import dataclasses
import ssl
from datetime import timedelta
from typing import Any

import pytest

from hanzoai.pubsub.errors import InsecureUrl, InvalidOption
from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.settings.options import (
    ClientOptions,
    ReceiveQueue,
    RetryOptions,
    SendQueue,
    Settings,
    check_token,
    read_options,
)
from hanzoai.pubsub.settings.urls import endpoints, is_loopback
from hanzoai.pubsub.values import Token

URL = "wss://pubsub.example.com:8057/ws"
SECRET = "s3cr3t-token-value"


def give_token(context: object) -> str:
    return "t"


def read(url: str | None = URL, token: str | None = "t", **more: Any) -> ClientOptions:
    more.setdefault("environ", {})
    return read_options(url, token, **more)


def refused(**more: Any) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        read(**more)
    return caught.value


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "socket", "http"),
    [
        (URL, URL, "https://pubsub.example.com:8056"),
        ("wss://h/ws", "wss://h/ws", "https://h"),
        ("wss://h", "wss://h/ws", "https://h"),
        ("wss://h:8057/", "wss://h:8057/ws", "https://h:8056"),
        ("wss://h:9000/a/b", "wss://h:9000/a/b", "https://h:9000"),
        ("wss://h:8057/ws?tenant=x", "wss://h:8057/ws?tenant=x", "https://h:8056"),
        ("https://h:8056", "wss://h:8057/ws", "https://h:8056"),
        ("https://h:8056/", "wss://h:8057/ws", "https://h:8056"),
        ("https://h/pubsub/", "wss://h/pubsub/ws", "https://h/pubsub"),
        ("ws://127.0.0.1:8057/ws", "ws://127.0.0.1:8057/ws", "http://127.0.0.1:8056"),
        ("http://[::1]:8056", "ws://[::1]:8057/ws", "http://[::1]:8056"),
        (" WSS://H/ws ", "wss://H/ws", "https://H"),
        ("https://h:8057/ws", "wss://h:8057/ws", "https://h:8056"),
        ("http://127.0.0.1:9000/a/ws", "ws://127.0.0.1:9000/a/ws", "http://127.0.0.1:9000"),
    ],
)
def test_one_address_gives_the_other(url: str, socket: str, http: str) -> None:
    found = endpoints(url)
    assert (found.socket, found.http) == (socket, http)


def test_the_http_api_may_be_elsewhere() -> None:
    assert endpoints(URL, "https://api.example.com/v2/").http == "https://api.example.com/v2"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "is empty"),
        ("pubsub.example.com", "no scheme"),
        ("h:8057", "no scheme"),
        ("ftp://h", "no scheme"),
        ("wss:h", "no scheme"),
        ("wss://", "names no host"),
        ("wss://h:0/ws", "port 0"),
        ("wss://h:99999/ws", "is not a URL"),
        ("wss://h:x/ws", "is not a URL"),
        ("wss://[::1/ws", "is not a URL"),
        ("wss://h/a b", "spaces"),
        ("wss://h/a\nb", "spaces"),
        ("wss://h/#a", "a fragment"),
        (f"wss://user:{SECRET}@h/ws", "a user or a password"),
        (f"wss://h/ws?token={SECRET}", "a token in its query"),
        (f"wss://h/ws?Access_Token={SECRET}", "a token in its query"),
        ("wss://h/" + "a" * 3_000, "longer than"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_it(url: str, problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        endpoints(url)
    assert caught.value.field == "url"
    assert problem in caught.value.message
    assert caught.value.remedy
    assert SECRET not in str(caught.value)


def test_a_local_address_without_a_scheme_is_shown_with_one() -> None:
    for url in ("localhost:8057", "127.0.0.1:8057/ws"):
        with pytest.raises(InvalidOption, match="no scheme") as caught:
            endpoints(url)
        assert caught.value.remedy == f"Write it like ws://{url}."
    with pytest.raises(InvalidOption, match="no scheme") as caught:
        endpoints(URL, "localhost:8056")
    assert caught.value.remedy == "Write it like http://localhost:8056."


def test_a_url_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidOption, match="is int, not a string"):
        endpoints(8057)
    with pytest.raises(InvalidOption, match="`rest_url` has no scheme") as caught:
        endpoints(URL, "wss://h")
    assert caught.value.field == "rest_url"


@pytest.mark.parametrize("url", ["ws://pubsub.example.com/ws", "http://10.0.0.5:8056"])
def test_a_token_does_not_go_in_the_clear_to_another_machine(url: str) -> None:
    with pytest.raises(InsecureUrl) as caught:
        read(url)
    assert caught.value.code == "insecure_url"
    assert read(url, allow_insecure=True).allow_insecure


def test_a_token_does_not_go_in_the_clear_to_an_http_api_elsewhere() -> None:
    with pytest.raises(InsecureUrl) as caught:
        read(URL, rest_url="http://api.example.com")
    assert caught.value.field == "rest_url"


def test_a_token_callback_counts_as_a_token() -> None:
    with pytest.raises(InsecureUrl):
        read("ws://pubsub.example.com/ws", token=None, get_token=give_token)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("app.localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_known_by_name_and_address(host: str, local: bool) -> None:
    assert is_loopback(host) is local


# ---------------------------------------------------------------- url and token


def test_the_environment_fills_in_what_was_not_given() -> None:
    environ = {"HANZO_PUBSUB_URL": URL, "HANZO_PUBSUB_TOKEN": "from-environment"}
    options = read_options(environ=environ)
    assert (options.socket_url, options.token) == (URL, "from-environment")
    assert read_options(None, "given", environ=environ).token == "given"
    assert read_options(None, get_token=give_token, environ=environ).token is None


def test_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_URL", URL)
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "t")
    assert read_options().socket_url == URL


def test_a_token_object_is_accepted_as_the_callback_returns_it() -> None:
    options = read_options(URL, Token(" Bearer t\n", expires_at=1))
    assert options.token == "Bearer t"
    assert refused(token=Token("two words")).field == "token"
    assert refused(token=b"bytes").field == "token"


def test_the_error_of_a_missing_url_or_token_names_the_variable() -> None:
    assert "HANZO_PUBSUB_URL" in refused(url=None).remedy
    assert "HANZO_PUBSUB_TOKEN" in refused(token=None).remedy
    misspelt = refused(token=None, environ={"HANZO_PUBSUB_TOKN": "x"})
    assert misspelt.remedy.endswith(" HANZO_PUBSUB_TOKN is set: did you mean HANZO_PUBSUB_TOKEN?")
    assert "HANZO_PUBSUB_TOKEN" in refused(token=None, environ={"HANZO_PUBSUB_TOKEN": ""}).remedy


def test_a_token_and_a_callback_are_one_too_many() -> None:
    assert refused(get_token=give_token).field == "token"
    assert refused(token=None, get_token="t").field == "get_token"


@pytest.mark.parametrize(
    ("token", "kept"),
    [
        ("abc", "abc"),
        ("Bearer ey.J0", "Bearer ey.J0"),
        ("  abc\n", "abc"),
        ("bearer abc", "bearer abc"),
    ],
)
def test_blanks_around_a_token_are_removed(token: str, kept: str) -> None:
    assert check_token(token) == kept


@pytest.mark.parametrize(
    "token",
    [
        "",
        " \n",
        "Bearer ",
        "bearer",
        "a b",
        "a\r\nX-Evil: 1",
        "schlüssel",
        "a\0b",
        "x" * 20_000,
        7,
        b"t",
    ],
)
def test_a_string_that_cannot_be_a_token_is_rejected_without_showing_it(token: object) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_token(token)
    assert caught.value.field == "token"
    if isinstance(token, str) and token.strip():
        assert token.strip() not in caught.value.message


def test_no_token_is_shown() -> None:
    assert SECRET not in repr(read(token=SECRET))


# ---------------------------------------------------------------- settings


def test_defaults_are_those_of_the_specification() -> None:
    options = read()
    assert options.open_timeout * 1000 == CLIENT.open_timeout
    assert options.send_queue == SendQueue(CLIENT.send_queue_messages, CLIENT.send_queue_bytes)
    assert options.receive_queue.policy == "gap"
    assert options.retry == RetryOptions(1.0, 30.0, 10.0)
    assert options.max_frame == 32 * 1024 * 1024


def test_every_setting_can_be_given_by_name() -> None:
    names = {field.name for field in dataclasses.fields(ClientOptions)}
    assert set(Settings.__annotations__) <= names


def test_settings_reach_the_session_in_milliseconds() -> None:
    retry = RetryOptions(base=0.5, cap=2)
    session = read(settings={"open_timeout": 1.5, "retry": retry, "overlap": 0}).session()
    assert (session.open_timeout, session.retry_base, session.retry_cap) == (1500, 500, 2000)
    assert session.overlap == 0
    assert not session.renewable
    assert read(token=None, get_token=give_token).session().renewable


def test_a_timedelta_is_a_duration_wherever_seconds_are() -> None:
    retry = RetryOptions(base=timedelta(milliseconds=500), cap=timedelta(minutes=1))
    given: Settings = {"open_timeout": timedelta(seconds=1.5), "overlap": timedelta(0)}
    options = read(settings={**given, "retry": retry})
    assert (options.open_timeout, options.overlap) == (1.5, 0.0)
    assert (options.session().retry_base, options.session().retry_cap) == (500, 60_000)
    with pytest.raises(InvalidOption) as caught:
        read(settings={"open_timeout": timedelta(days=2)})
    assert caught.value.field == "open_timeout"
    assert caught.value.remedy == "Give seconds or a timedelta, from 0.001 to 86400."


def test_the_session_has_the_same_defaults() -> None:
    session = read().session()
    plain = type(session)(client_version=session.client_version, renewable=False)
    assert session == plain


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"open_timeout": 0}, "open_timeout"),
        ({"open_timeout": "5"}, "open_timeout"),
        ({"open_timeout": True}, "open_timeout"),
        ({"open_timeout": float("nan")}, "open_timeout"),
        ({"open_timeout": float("inf")}, "open_timeout"),
        ({"open_timeout": 10**400}, "open_timeout"),
        ({"ping_interval": -1}, "ping_interval"),
        ({"overlap": -0.1}, "overlap"),
        ({"short_life": 0}, "short_life"),
        ({"short_life": 1.5}, "short_life"),
        ({"history_page": 501}, "history_page"),
        ({"rest_attempts": 0}, "rest_attempts"),
        ({"max_frame": 10}, "max_frame"),
        ({"max_payload": None}, "max_payload"),
        ({"compression": 1}, "compression"),
        ({"retry": 3}, "retry"),
        ({"receive_queue": 100}, "receive_queue"),
        ({"proxy": None}, "proxy"),
        ({"proxy": ""}, "proxy"),
        ({"proxy": "127.0.0.1:3128"}, "proxy"),
        ({"proxy": "http://proxy:port"}, "proxy"),
        ({"proxy": "ftp://proxy:21"}, "proxy"),
        ({"ssl_context": "cert.pem"}, "ssl_context"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], field: str) -> None:
    error = refused(settings=settings)
    assert error.field == field
    assert error.remedy


def test_the_remedy_for_tls_settings_names_the_standard_library() -> None:
    remedy = refused(settings={"ssl_context": True}).remedy
    assert remedy == "Create it with ssl.create_default_context(cafile=...)."


def test_good_settings_are_kept() -> None:
    context = ssl.create_default_context()
    options = read(
        name="reader",
        echo=False,
        transport="sse",
        settings={"ssl_context": context, "proxy": "http://proxy:3128", "compression": True},
    )
    assert options.ssl_context is context
    assert (options.name, options.echo, options.transport) == ("reader", False, "sse")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"transport": "carrier-pigeon"}, "transport"),
        ({"transport": None}, "transport"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 3}, "name"),
        ({"echo": "yes"}, "echo"),
        ({"allow_insecure": "yes"}, "allow_insecure"),
        ({"send_queue": 1000}, "send_queue"),
    ],
)
def test_a_wrong_argument_is_named(more: dict[str, Any], field: str) -> None:
    assert refused(**more).field == field


def test_a_misspelt_choice_gets_a_suggestion() -> None:
    assert "Did you mean `websocket`?" in refused(transport="websockets").remedy


def test_a_misspelt_option_gets_a_suggestion() -> None:
    error = refused(settings={"open_timout": 3})
    assert error.remedy == "Did you mean `open_timeout`?"
    assert error.field == "open_timout"
    assert refused(settings={"tokn": "x"}).remedy == "Did you mean `token`?"
    assert "Settings" in refused(settings={"zzz": 1}).remedy


@pytest.mark.parametrize("settings", [SendQueue, ReceiveQueue, RetryOptions])
def test_an_unknown_argument_of_settings_is_an_invalid_option(settings: type[Any]) -> None:
    with pytest.raises(InvalidOption, match=f"{settings.__name__} has the options") as unknown:
        settings(zzz=1)
    assert unknown.value.field == "zzz"


def test_a_misspelt_argument_of_settings_gets_a_suggestion() -> None:
    with pytest.raises(InvalidOption, match="There is no option `mesages`") as misspelt:
        ReceiveQueue(mesages=10)  # type: ignore[call-arg]
    assert misspelt.value.remedy == "Did you mean `messages`?"


@pytest.mark.parametrize(
    "make",
    [
        lambda: SendQueue(messages=0),
        lambda: SendQueue(bytes=-1),
        lambda: SendQueue(policy="drop"),  # type: ignore[arg-type]
        lambda: ReceiveQueue(messages=2_000_000),
        lambda: ReceiveQueue(policy="drop_oldest"),  # type: ignore[arg-type]
        lambda: RetryOptions(base=0),
        lambda: RetryOptions(base=5, cap=1),
    ],
)
def test_bounds_are_checked_where_they_are_made(make: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        make()
    assert "." in (caught.value.field or "")
