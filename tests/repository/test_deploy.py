"""The files of server-mock/deploy/ are valid, and the server knows their settings.

tests/cluster/test_rolling.py runs HAProxy and nginx with their files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pubsub_server import commands
from tests.bench.__main__ import RESULTS
from tests.bench.capacity import fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

DEPLOY = Path(__file__).parents[2] / "server-mock" / "deploy"
OF_THE_PROCESS = 150 * 1024
"""KiB of a process in addition to its connections."""


def composed() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    return loaded


def test_the_nodes_of_the_compose_file_start_with_what_they_are_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith("HANZO_PUBSUB_"):
            monkeypatch.delenv(name)
    for name in ("node1", "node2", "node3"):
        node = composed()["services"][name]
        for variable, value in node["environment"].items():
            monkeypatch.setenv(variable, value)
        assert commands.serve([*node["command"], "--check-config"]) == commands.OK
        output = capsys.readouterr()
        settings = yaml.safe_load(output.out)
        assert settings["backplane"] in (None, "redis")
        assert output.err == ""
        grace, notice, timeout = (
            int(duration.removesuffix("s"))
            for duration in (
                node["stop_grace_period"],
                settings["drain_notice"],
                settings["drain_timeout"],
            )
        )
        assert grace > notice + timeout


def test_the_balancer_of_the_compose_file_knows_where_its_nodes_are() -> None:
    services = composed()["services"]
    nodes = {
        each["networks"]["pubsub"]["ipv4_address"]
        for name, each in services.items()
        if name.startswith("node")
    }
    for name in ("haproxy.cfg", "nginx.conf"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\d+\.\d+\.\d+\.\d+", text)) == nodes


def test_no_other_service_of_the_compose_file_has_the_address_of_a_node() -> None:
    (pool,) = composed()["networks"]["pubsub"]["ipam"]["config"]
    dynamic = ip_network(pool["ip_range"])
    subnet = ip_network(pool["subnet"])
    fixed = [
        ip_address(each["networks"]["pubsub"]["ipv4_address"])
        for each in composed()["services"].values()
        if isinstance(each["networks"], dict)
    ]
    assert len(set(fixed)) == 3
    for address in (*fixed, ip_address(pool["gateway"])):
        assert address in subnet
        assert address not in dynamic
    assert dynamic[0] in subnet
    assert dynamic[-1] in subnet


def test_the_image_of_the_nodes_is_built_from_the_wheels_and_never_pulled() -> None:
    for name in ("node1", "node2", "node3"):
        node = composed()["services"][name]
        assert node["pull_policy"] == "build"
        assert "/" not in node["image"]
        makefile = (DEPLOY.parents[1] / "Makefile").read_text(encoding="utf-8")
        built = (DEPLOY / node["build"]["context"]).resolve().relative_to(DEPLOY.parents[1])
        assert f"--out-dir {built} server-mock" in makefile
        dockerfile = DEPLOY / node["build"]["context"] / node["build"]["dockerfile"]
        assert dockerfile.resolve() == DEPLOY / "Dockerfile"


def test_a_node_of_the_compose_file_has_memory_and_files_for_its_connections() -> None:
    node = composed()["services"]["node1"]
    connections = int(node["environment"]["HANZO_PUBSUB_MAX_CONNECTIONS"])
    memory = node["deploy"]["resources"]["limits"]["memory"]
    costs = fit(json.loads(RESULTS.read_text(encoding="utf-8")))
    of_both_ports = 2 * connections
    needed = of_both_ports * (costs.memory + costs.kernel) + OF_THE_PROCESS
    assert needed < int(memory.removesuffix("M")) * 1024
    assert node["ulimits"]["nofile"] >= of_both_ports + 500


def test_the_certificate_of_the_balancers_is_where_the_compose_file_mounts_it() -> None:
    mounted = [each.split(":")[1] for each in composed()["services"]["balancer"]["volumes"]]
    for name in ("haproxy.cfg", "nginx.conf"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (folder,) = set(re.findall(r"(/\S+)/cert\.pem", text))
        assert folder in mounted
        ends = re.findall(r"^ *(?:bind|listen) .*", text, re.MULTILINE)
        assert len(ends) == 2
        assert all(" ssl" in each for each in ends)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "hanzo-pubsub.service").read_text(encoding="utf-8")
    program = "/opt/hanzo-pubsub/bin/hanzo-pubsub"
    assert program in text
    unit = tmp_path / "hanzo-pubsub.service"
    unit.write_text(text.replace(program, sys.executable), encoding="utf-8")
    parsed = RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(text)
    assert parsed.sections() == ["Unit", "Service", "Install"]
    # It must restart until Redis is available, however long that takes.
    assert parsed["Unit"]["StartLimitIntervalSec"] == "0"
    assert parsed["Service"]["Restart"] == "on-failure"
    # Relative paths must be in a writable folder.
    assert parsed["Service"]["WorkingDirectory"] == f"%S/{parsed['Service']['StateDirectory']}"
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, about) == (0, [])
