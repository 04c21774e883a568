"""The files of server-mock/deploy/: what reads them takes them, the server knows their settings.

HAProxy and nginx run with theirs in tests/cluster/test_rolling.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pubsub_server import commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

DEPLOY = Path(__file__).parents[2] / "server-mock" / "deploy"


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
        said = capsys.readouterr()
        settings = yaml.safe_load(said.out)
        assert settings["backplane"] in (None, "redis")
        assert said.err == ""
        grace = int(node["stop_grace_period"].removesuffix("s")) * 1000
        assert grace > settings["drain_notice"] + settings["drain_timeout"]


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
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, about) == (0, [])
