"""The extra `speed`: the libraries that a client uses, and when."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.settings import extras
from hanzoai.pubsub.settings.options import ClientOptions, read_options
from hanzoai.pubsub.transports import picows_connection, speed, websockets_connection
from hanzoai.pubsub.wire.codec import plain_codec
from hanzoai.pubsub.wire.msgspec_codec import fast_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL = "wss://pubsub.example.com/ws"


def read(environ: Mapping[str, str] | None = None, url: str = URL, **more: Any) -> ClientOptions:
    return read_options(url, "t", settings=more, environ=environ or {})


def without(*packages: str) -> Callable[[str], object]:
    """Replace `find_spec` to simulate packages that are not installed."""
    return lambda name: None if name in packages else importlib.util.find_spec(name)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_what_is_installed_is_used() -> None:
    assert speed.choose_dialer(read()) is picows_connection.dial
    assert speed.choose_codec(read()) is fast_codec()


@pytest.mark.parametrize("environ", [{}, {"HANZO_PUBSUB_SPEED": "on"}])
def test_the_option_overrides_the_environment(environ: dict[str, str]) -> None:
    options = read(environ, speed="off")
    assert speed.choose_dialer(options) is websockets_connection.dial
    assert speed.choose_codec(options) is plain_codec()


def test_the_environment_chooses() -> None:
    options = read({"HANZO_PUBSUB_SPEED": "off"})
    assert speed.choose_dialer(options) is websockets_connection.dial


def test_each_library_is_used_without_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", without("msgspec"))
    assert speed.choose_dialer(read()) is picows_connection.dial
    assert speed.choose_codec(read()) is plain_codec()
    monkeypatch.setattr(extras, "find_spec", without("picows"))
    assert speed.choose_dialer(read()) is websockets_connection.dial
    assert speed.choose_codec(read()) is fast_codec()


def test_an_old_library_that_another_program_needs_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = {"picows": (1, 9), "msgspec": (0, 18)}
    monkeypatch.setattr(extras, "_version", old.__getitem__)
    assert speed.choose_dialer(read()) is websockets_connection.dial
    assert speed.choose_codec(read()) is plain_codec()
    with pytest.raises(InvalidOption, match="picows and msgspec"):
        read(speed="on")


def test_the_extra_asks_for_the_oldest_version_that_is_used() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["speed"]
    for package, least in extras._LEAST.items():
        bound = ">=" + ".".join(map(str, least))
        assert any(one.split(";")[0].strip() == package + bound for one in extra)


@pytest.mark.parametrize(
    ("missing", "named"),
    [(("picows",), "picows"), (("picows", "msgspec"), "picows and msgspec")],
)
def test_on_is_refused_where_a_library_is_missing(
    missing: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", without(*missing))
    with pytest.raises(InvalidOption, match=f"{named} can be imported") as caught:
        read(speed="on")
    assert caught.value.field == "speed"
    assert "hanzoai.pubsub[speed]" in (caught.value.remedy or "")
    assert read(speed="auto").speed == "auto"


def test_another_value_is_refused() -> None:
    with pytest.raises(InvalidOption) as caught:
        read(speed="fast")
    assert caught.value.field == "speed"


@pytest.mark.parametrize(
    "more", [{"compression": True}, {"proxy": "http://proxy.example.com:3128"}], ids=repr
)
def test_connections_that_picows_does_not_support_use_websockets(more: dict[str, Any]) -> None:
    assert speed.choose_dialer(read(speed="on", **more)) is websockets_connection.dial


def test_a_proxy_of_the_system_goes_over_websockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    assert speed.choose_dialer(read()) is websockets_connection.dial
    assert speed.choose_dialer(read(proxy=False)) is picows_connection.dial


def test_this_machine_is_reached_without_a_proxy() -> None:
    options = read(url="ws://127.0.0.1:8057/ws", proxy="http://proxy.example.com:3128")
    assert speed.choose_dialer(options) is picows_connection.dial
