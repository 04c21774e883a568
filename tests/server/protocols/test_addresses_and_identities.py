from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.access.policy import Policy, load_rules
from pubsub_server.access.setup import StartError
from pubsub_server.listeners.byte_connections import NOBODY
from pubsub_server.listeners.event_stream import listener
from pubsub_server.listeners.event_stream.announcements import Announcements
from pubsub_server.process import ready_line
from pubsub_server.settings.addresses import Address, parse_address
from pubsub_server.settings.sources import SettingsError, load
from pubsub_server.testing import running_server
from tests.server.protocols.peers import events, until

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.interfaces import HookEvent


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("7420", Address("127.0.0.1", 7420)),
        ("0", Address("127.0.0.1", 0)),
        ("0.0.0.0:7420", Address("0.0.0.0", 7420)),
        ("[::1]:7420", Address("::1", 7420)),
        ("bus.example.com:1", Address("bus.example.com", 1)),
        ("unix:/run/bus.sock", Address("", 0, "/run/bus.sock")),
    ],
)
def test_an_address_is_a_port_a_host_and_port_or_a_path(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4", "70000", ":1", "unix:", "tcp://a:1", "::1:5"])
def test_another_address_is_refused_with_its_forms(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        load({"event_stream": text or "?"})


async def test_the_ready_line_has_the_address_of_each_listener(tmp_path: Path) -> None:
    async with running_server(event_stream="0", hub=f"unix:{tmp_path / 'hub'}") as server:
        line = json.loads(ready_line(server.server))
        assert line["event_stream"].startswith("events://127.0.0.1:")
        assert line["hub"] == f"hub+unix:{tmp_path / 'hub'}"
    async with running_server() as server:
        assert not {"event_stream", "hub"} & set(json.loads(ready_line(server.server)))


async def test_an_address_in_use_and_one_that_others_reach_are_refused(tmp_path: Path) -> None:
    async with running_server(hub="0") as server:
        port = server.server.others["hub"].rpartition(":")[2]
        with pytest.raises(StartError, match=rf"hub: cannot listen on {port}: another process"):
            async with running_server(hub=port):
                pass
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"hub: cannot listen on unix:.*/file: the path is in use"):
        async with running_server(hub=f"unix:{tmp_path / 'file'}"):
            pass
    with pytest.raises(StartError, match=r"not on 0\.0\.0\.0; use 127\.0\.0\.1 with --event"):
        async with running_server(event_stream="0.0.0.0:0"):
            pass


def test_listeners_of_bytes_need_one_process_and_identities_their_listener() -> None:
    with pytest.raises(SettingsError, match="run one worker"):
        load({"hub": "0", "workers": 2})
    with pytest.raises(SettingsError, match="names hub, which is off"):
        load({"listener_identities": {"hub": {"user": "a"}}})
    with pytest.raises(SettingsError, match="listener_identities"):
        load({"event_stream": "0", "listener_identities": '{"event_stream": {"kind": "god"}}'})


def test_identities_come_from_json_or_a_file_with_it(tmp_path: Path) -> None:
    text = '{"hub": {"user": "relay", "kind": "service", "orgs": ["acme"]}}'
    file = tmp_path / "identities.json"
    file.write_text(text)
    for given in (text, str(file)):
        entry = load({"hub": "0", "listener_identities": given}).listener_identities["hub"]
        identity = entry.identity()
        assert (identity.user_id, identity.kind, identity.name) == ("relay", "service", "relay")
        assert identity.orgs == {"acme"}
    with pytest.raises(SettingsError, match=r"missing\.json"):
        load({"hub": "0", "listener_identities": str(tmp_path / "missing.json")})
    with pytest.raises(SettingsError, match=r"must be a mapping; expected a map of listener"):
        load({"hub": "0", "listener_identities": "[]"})


def test_an_unauthenticated_client_may_only_use_what_rules_grant_to_it(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules:\n"
        "  - {pattern: 'open.**', require: {authenticated: false}, publish: true}\n"
        "  - {pattern: 'all.**', require: {authenticated: true}}\n"
        "  - {pattern: 'user.<u>', require: {user_id: <u>}}\n"
    )
    policy = Policy(load_rules([rules]))
    assert policy.may_publish(NOBODY, "open.a")
    assert policy.may_subscribe_pattern(NOBODY, "**")
    for topic in ("all.a", "user.anonymous", "other"):
        assert not policy.may_subscribe(NOBODY, topic)
        assert not policy.may_publish(NOBODY, topic)


async def test_a_listener_without_an_identity_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running_server(hub="0"):
            pass
    assert "connections of hub are unauthenticated" in caplog.text


class Hooks:
    def __init__(self) -> None:
        self.reported: list[tuple[str, str, Any]] = []

    def wants(self, event: HookEvent, topic: str) -> bool:
        return event.startswith("pubsub.")

    def notify(self, event: HookEvent, topic: str, body: bytes) -> None:
        self.reported.append((event, topic, json.loads(body)))


@pytest.mark.statement("P-25")
async def test_webhooks_receive_subscriptions_and_events(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()

    def announcements(webhooks: object) -> Announcements:
        return Announcements(hooks)

    monkeypatch.setattr(listener, "Announcements", announcements)
    who = {"event_stream": {"user": "bus", "kind": "admin"}}
    async with running_server(event_stream="0", listener_identities=who) as server:
        url = server.server.others["event_stream"]
        async with events(url, b"demo.a") as peer:
            peer.event(b"demo.a", b"four")
            peer.event(b"a b", b"")
            await until(lambda: len(hooks.reported) == 3)
        await until(lambda: len(hooks.reported) == 4)
        assert hooks.reported == [
            ("pubsub.subscribed", "demo.a", {"topic": "demo.a"}),
            ("pubsub.published", "demo.a", {"topic": "demo.a", "size": 4}),
            ("pubsub.published", "a b", {"topic": "a b", "size": 0}),
            ("pubsub.unsubscribed", "demo.a", {"topic": "demo.a"}),
        ]
