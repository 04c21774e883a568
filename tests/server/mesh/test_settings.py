"""Settings of a mesh: valid combinations, allowed nodes, and the output of `--check-config`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from pubsub_server import commands, preflight
from pubsub_server.access.setup import StartError
from pubsub_server.settings.sources import SettingsError, load
from pubsub_server.testing import running_server
from tests.server.mesh.rig import QUICK, node
from tests.server.mesh.seed_peer import seed_peer
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from pathlib import Path

KEY = "a shared key of a test"
MESH: dict[str, Any] = {"backplane": "mesh", "mesh_listen": "0"}
ELSEWHERE_KEYS: dict[str, Any] = {
    "mesh_key": KEY,
    "behind_tls_proxy": True,
    "iam_url": "http://127.0.0.1:9",
}
ELSEWHERE: dict[str, Any] = {"behind_tls_proxy": True, "iam_url": "https://iam", "dev": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"backplane": "mesh"}, "backplane is `mesh` without mesh_listen"),
        ({"mesh_listen": "0"}, "mesh_listen is set without backplane `mesh`"),
        ({"mesh_peer": "a:1"}, "mesh_peer is set without backplane `mesh`"),
        ({**MESH, "workers": "2"}, "backplane is `mesh` with 2 workers"),
        ({**MESH, "mesh_listen": "unix:/tmp/a"}, "unix:/tmp/a is not a port or HOST:PORT"),
        ({**MESH, "mesh_listen": "a:99999"}, "must have a port of at most 65535"),
        ({**MESH, "mesh_peer": "a:1,b"}, "b is not a port or HOST:PORT"),
        ({**MESH, "mesh_peer": "a..b:1"}, "a..b:1 is not a port or HOST:PORT"),
        ({**MESH, "mesh_peer": "a:0"}, "a:0 has port 0"),
        ({**MESH, "mesh_advertise": "a:0"}, "mesh_advertise has port 0"),
        ({**MESH, "mesh_heartbeat": "0"}, "greater than or equal to 1"),
        ({**MESH, "mesh_tls_cert": "c"}, "mesh_tls_cert is set without mesh_tls_key"),
        (
            {**MESH, "mesh_tls_cert": "c", "mesh_tls_key": "k"},
            "mesh_tls_cert is set without mesh_tls_ca",
        ),
    ],
)
def test_an_invalid_setting_is_reported_with_problem_and_remedy(
    given: dict[str, object], expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(given)
    assert expected in str(caught.value)


def test_a_key_that_is_too_short_is_refused_without_being_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        load({**MESH, "mesh_key": "hunter2"})
    assert "has 7 of at least 16 characters" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_key_or_certificates_are_needed_except_in_development_on_loopback() -> None:
    (line,) = preflight.problems(load({**MESH, **ELSEWHERE}))
    assert "set mesh_key" in line
    assert preflight.problems(load({**MESH, **ELSEWHERE, "mesh_key": KEY})) == []
    assert preflight.problems(load({**MESH, "dev": True})) == []
    (line,) = preflight.problems(load({**MESH, "dev": True, "mesh_listen": "0.0.0.0:7946"}))
    assert "--dev listens on loopback only" in line


def test_check_config_shows_the_settings_and_hides_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_MESH_KEY", KEY)
    flags = ("--backplane", "mesh", "--mesh-listen", "7946", "--mesh-peer", "a:7946,b:7946")
    assert commands.serve(["--dev", "--check-config", *flags]) == 0
    shown = capsys.readouterr().out
    assert "mesh_peer:  # flag --mesh-peer\n- a:7946\n- b:7946\n" in shown
    assert "mesh_heartbeat: 5s\n" in shown
    assert KEY not in shown
    assert commands.serve(["--dev", "--check-config", *flags[:2]]) == 2
    assert "without mesh_listen" in capsys.readouterr().err


async def test_an_address_that_is_taken_stops_the_start() -> None:
    async with node() as one:
        with pytest.raises(StartError, match=r"mesh_listen: cannot listen on .*: another proc"):
            async with running_server(**{**QUICK, "mesh_listen": one.address}):
                pass


def certified(folder: Path, name: str, issuer: trustme.CA) -> dict[str, Any]:
    """Write a certificate of a node, and return the settings; the first issuer is trusted."""
    if not (folder / "ca.pem").exists():
        issuer.cert_pem.write_to_path(folder / "ca.pem")
    found = issuer.issue_cert(name)
    found.private_key_pem.write_to_path(folder / f"{name}.key")
    found.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return {
        "mesh_tls_cert": folder / f"{name}.pem",
        "mesh_tls_key": folder / f"{name}.key",
        "mesh_tls_ca": folder / "ca.pem",
    }


@pytest.mark.statement("Z-29", "Z-31")
async def test_with_certificates_nodes_connect_by_tls_and_strangers_do_not(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    async with node(**certified(tmp_path, "one", authority)) as one:
        assert one.url.startswith("mesh+tls://")
        async with node(one, **certified(tmp_path, "two", authority)) as two:
            await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        await until(lambda: not one.mesh.peers)
        async with node(one, **certified(tmp_path, "three", stranger)) as three, node(one) as four:
            assert not one.mesh.peers
            assert not three.mesh.peers
            assert not four.mesh.peers
        # A client that begins no handshake is disconnected after four windows.
        async with seed_peer(one.url.replace("+tls", "")) as silent, asyncio.timeout(BOUND / 2):
            await silent.ended()
    (tmp_path / "one.pem").write_text("no certificate", encoding="utf-8")
    files = {name: str(file) for name, file in certified(tmp_path, "five", authority).items()}
    files["mesh_tls_cert"] = str(tmp_path / "one.pem")
    (line,) = preflight.problems(load({**MESH, "dev": True, **files}))
    assert line.startswith("mesh_tls_cert: ")


async def test_a_node_with_tls_reports_that_a_peer_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as plain, node(plain, **certified(tmp_path, "one", trustme.CA())):
        await until(lambda: "does not use TLS" in caplog.text)
    assert "that both nodes use mesh_tls_cert, or neither" in caplog.text


async def test_a_node_behind_a_proxy_is_found_at_the_address_that_it_advertises() -> None:
    async with node(mesh_advertise="127.0.0.1:1") as one, node(one) as two:
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        (remote,) = two.mesh.nodes
        assert remote.address == "127.0.0.1:1"
    async with node(mesh_listen="0.0.0.0:0", **ELSEWHERE_KEYS) as three:
        port = three.url.rpartition(":")[2]
        async with node(f"127.0.0.1:{port}", mesh_key=KEY) as four:
            await until(lambda: four.mesh.peers == 1)
            (remote,) = four.mesh.nodes
            assert remote.address == f"127.0.0.1:{port}"
