"""The program: start, ready line, start errors, draining; and the integration of its parts."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
import trustme
import websockets
import yaml
from aiohttp import web

from hanzoai.pubsub import PubSubClient
from pubsub_server import commands
from pubsub_server.access.setup import StartError
from pubsub_server.auth.api_keys import generate, hash_key
from pubsub_server.observe import logs
from pubsub_server.process import tune_collector
from pubsub_server.settings.config import GROUPS, Settings
from pubsub_server.testing import running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

PATIENCE = 60
ROOT = Path(__file__).parents[2]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user without any settings."""
    for name in list(os.environ):
        if name.startswith("HANZO_PUBSUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return dict(os.environ)


@asynccontextmanager
async def program(
    *argv: str, environ: dict[str, str]
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pubsub_server",
        *argv,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ready(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = json.loads(await process.stdout.readline())
    assert isinstance(line, dict)
    return line


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    command = {"serve": commands.serve, "token": commands.token}[argv[0]]
    code = command(argv[1:])
    out, err = capsys.readouterr()
    return code, out, err


SERVE = ("serve", "--dev", "--http-port", "0", "--ws-port", "0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_prints_its_addresses_serves_and_drains(
    environ: dict[str, str], number: signal.Signals
) -> None:
    async with program(*SERVE, environ=environ) as process:
        line = await ready(process)
        assert line["event"] == "ready"
        assert line["pid"] == process.pid
        assert line["version"]
        assert line["ws"].startswith("ws://127.0.0.1:")
        assert line["ws"].endswith("/ws")
        async with (
            program("token", "--user", "alice", environ=environ) as minting,
            http_client(base_url=line["http"]) as client,
        ):
            code, token, _ = await ended(minting)
            assert code == 0
            headers = {"Authorization": f"Bearer {token.strip()}"}
            answer = await client.get("/v1/session", headers=headers)
            assert answer.json()["user_id"] == "alice"
            stream = client.stream("GET", "/v1/subscribe?topics=demo.x", headers=headers)
            async with stream as response:
                lines = response.aiter_lines()
                async with asyncio.timeout(PATIENCE):
                    while await anext(lines) != "event: subscribed":
                        pass
                process.send_signal(number)
                async with asyncio.timeout(PATIENCE):
                    rest = [text async for text in lines]
                assert any("going_away" in text for text in rest)
        code, out, err = await ended(process)
        assert (code, out) == (0, "")
        logged = [json.loads(text) for text in err.splitlines()]
        assert [entry["level"] for entry in logged] == ["info"] * len(logged)
        assert token.strip() not in err


async def test_a_port_in_use_is_one_clear_line(environ: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for flag in ("--http-port", "--ws-port"):
            argv = [*SERVE, flag, str(port)]
            async with program(*argv, environ=environ) as process:
                code, out, err = await ended(process)
            assert (code, out) == (1, "")
            (line,) = [json.loads(text) for text in err.splitlines()]
            assert line == {
                "event": "error",
                "message": f"port {port} of 127.0.0.1 is in use; "
                f"choose another with {flag} (0: any)",
                "code": "failed",
            }


@pytest.mark.parametrize(
    "argv",
    [
        ("serve",),
        ("serve", "--dev", "--host", "0.0.0.0"),
        ("serve", "--dev", "--http-prot", "1"),
        ("token",),
        ("token", "--user", "a", "--ttl", "soon"),
    ],
)
def test_wrong_usage_exits_with_2_and_prints_json_outside_of_a_terminal(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    del environ
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    for line in err.splitlines():
        expected = json.loads(line)
        assert (expected["event"], expected["code"]) == ("error", "usage")
        assert expected["message"]
    assert err


def test_a_terminal_gets_complaints_as_text(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del environ
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, err = run(capsys, "token", "--user", "a", "--ttl", "soon")
    assert code == 2
    assert err.startswith("hanzo-pubsub: argument --ttl: 'soon' is not a duration; write 500ms")


@pytest.mark.parametrize(("ttl", "seconds"), [("5m", 300), ("90", 90), ("1.5h", 5400)])
def test_the_life_of_a_token_is_a_duration(
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    ttl: str,
    seconds: int,
) -> None:
    del environ
    key = tmp_path / "dev.key"
    code, out, err = run(capsys, "token", "--user", "a", "--ttl", ttl, "--dev-key-file", str(key))
    assert (code, err) == (0, "")
    claims = jwt.decode(out.strip(), options={"verify_signature": False})
    assert 0 <= claims["exp"] - claims["iat"] - seconds < 1


@pytest.mark.parametrize(
    ("argv", "code", "expected"),
    [
        (("--dev", "--host", "0.0.0.0"), 2, "loopback only, not on 0.0.0.0"),
        (("--dev", "--host", "192.0.2.1"), 2, "loopback only"),
        ((), 2, "no client could authenticate"),
        (("--iam-jwks-url", "https://hanzo.id/jwks"), 2, "plaintext is rejected"),
        (("--dev", "--rules", "/nowhere.yaml"), 2, "rules: /nowhere.yaml: cannot be read"),
        (("--dev", "--http-prot", "1"), 2, "did you mean --http-port?"),
        (("--dev", "--port", "1"), 2, "did you mean --http-port or --ws-port?"),
        (("--dev", "--http-port", "x"), 2, "http_port (flag --http-port)"),
        (("--dev", "--config", "/nowhere.yaml"), 2, "cannot be read"),
        (("--dev", "extra"), 2, "only flags"),
    ],
)
def test_a_forbidden_configuration_does_not_start_and_names_the_reason(
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    argv: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    del environ
    got, _, err = run(capsys, "serve", "--check-config", *argv)
    assert got == code
    assert expected in err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "--user is missing; write the id of the user, for example --user alice"),
        (("alice",), "'alice' is not part of a flag; write --user alice for a token"),
        (("--user", "alice", "--tll", "5m"), "--tll: there is no such flag; did you mean --ttl?"),
        (("--user", "alice", "--x"), "--x: there is no such flag (see"),
        (("--user",), "argument --user: the value is missing"),
        (("--user", "a", "--ttl", "-1h"), "'-1h' is not a duration; write 500ms, 60s"),
        (("--user", "a", "--ttl", "400d"), "'400d' is out of range; write more than 0 and at most"),
    ],
)
def test_wrong_arguments_of_token_are_named_with_a_remedy(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], expected: str
) -> None:
    code, out, err = run(capsys, "token", *argv)
    assert (code, out) == (2, "")
    assert expected in json.loads(err)["message"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_start_with_files_that_a_restart_cannot_fix_exits_with_2_and_names_them_all(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], workers: str
) -> None:
    del environ
    hook = {
        "url": "http://127.0.0.1:9/",
        "secret": "whsec_" + "c2VjcmV0" * 4,
        "topics": ["demo.a*"],
    }
    code, out, err = run(
        *(capsys, *SERVE, "--workers", workers, "--redis-url", "redis://127.0.0.1:9"),
        *("--rules", "/nowhere.yaml", "--webhooks", json.dumps([hook])),
    )
    assert (code, out) == (2, "")
    lines = [json.loads(text) for text in err.splitlines()]
    assert [line["code"] for line in lines] == ["usage", "usage"]
    assert [line["message"].split(":")[0] for line in lines] == ["rules", "webhooks[0].topics"]


@pytest.mark.parametrize(("workers", "starts"), [("1", "_run"), ("2", "_supervise")])
def test_sigterm_before_the_server_handles_it_ends_the_program_with_0(
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    starts: str,
) -> None:
    del environ

    def log_nothing(_: object) -> None:
        """The logger would keep the standard error that pytest captures for this test."""

    def start(*_: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(logs, "configure", log_nothing)
    monkeypatch.setattr(commands, starts, start)
    before = signal.getsignal(signal.SIGTERM)
    redis = ("--redis-url", "redis://127.0.0.1:9")
    assert run(capsys, *SERVE, "--workers", workers, *redis) == (0, "", "")
    assert signal.getsignal(signal.SIGTERM) is before


def test_check_config_prints_the_effective_settings(
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    del environ
    file = tmp_path / "pubsub.yaml"
    file.write_text("ws_port: 9000\n", encoding="utf-8")
    monkeypatch.setenv("HANZO_PUBSUB_CONFIG", str(file))
    monkeypatch.setenv("REDIS_URL", "redis://:hush@redis:6379")
    code, out, _ = run(capsys, "serve", "--dev", "--max-batch", "7", "--check-config")
    values = yaml.safe_load(out)
    assert code == 0
    assert (values["dev"], values["max_batch"], values["ws_port"]) == (True, 7, 9000)
    assert "hush" not in out
    sources = dict(line.split(":", 1) for line in out.splitlines() if "  # " in line)
    assert sources == {
        "ws_port": f" 9000  # file {file}",
        "redis_url": " '********'  # environment REDIS_URL",
        "dev": " true  # flag --dev",
        "max_batch": " 7  # flag --max-batch",
    }


def test_check_config_reports_all_problems_at_once(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del environ
    (tmp_path / "rules.yaml").write_text("rules: 7\n", encoding="utf-8")
    file = tmp_path / "pubsub.yaml"
    file.write_text(
        f"""\
http_port: many
histroy_max_age: 5
tls_key: {tmp_path}/key.pem
rules: {tmp_path}/rules.yaml
api_keys_file: {tmp_path}/none.yaml
audit_file: {tmp_path}/none/audit
audit_topics: ["org.**.**.", "fine"]
webhooks:
  - {{url: "https://example.com/x", secret: "a-secret-of-sixteen", topics: ["a..b"]}}
redis_url: http://user:hush@redis
""",
        encoding="utf-8",
    )
    code, out, err = run(capsys, "serve", "--check-config", "--config", str(file))
    assert (code, out) == (2, "")
    files = ("rules.yaml", "none.yaml", "audit_topics", "audit_file", "webhooks[0].topics")
    for expected in (
        *("http_port", "histroy_max_age", "tls_key is set without", "redis_url must begin"),
        *files,
    ):
        assert expected in err, expected
    assert len(err.splitlines()) == len(set(err.splitlines()))
    wrong = {"tls_key", "redis_url", "histroy_max_age"}
    lines = file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split(":")[0] not in wrong]
    file.write_text("\n".join(kept), encoding="utf-8")
    code, out, err = run(capsys, "serve", "--check-config", "--config", str(file))
    assert code == 2
    assert yaml.safe_load(out)["http_port"] == 8056
    for expected in ("http_port", "plaintext is rejected", *files):
        assert expected in err, expected
    assert "a-secret" not in out + err


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://redis:6379/first", "redis_url: the path of the URL is the number of a database"),
        ("redis://:hush/hush@redis", "redis_url has an invalid host or port"),
        ("redis://user:1/hush@redis", "write a / in a user or password as %2F"),
        ("rediss://redis?ssl_ca_cert=ca.pem", "redis_url: there is no option 'ssl_ca_cert'"),
        ("rediss://redis?ssl_ca_certs=none.pem", "redis_url: ssl_ca_certs: none.pem cannot be"),
    ],
)
@pytest.mark.parametrize("flags", [("--check-config",), ()])
def test_a_redis_url_that_no_redis_can_serve_is_a_problem_of_the_settings(
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    expected: str,
    flags: Sequence[str],
) -> None:
    del environ
    monkeypatch.setenv("REDIS_URL", url)
    code, _, err = run(capsys, "serve", "--dev", *flags)
    assert (code, len(err.splitlines())) == (2, 1)
    assert expected in err
    assert "hush" not in err


def test_problems_that_follow_from_a_wrong_value_are_not_reported(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    del environ
    code, _, err = run(capsys, "serve", "--check-config", "--dev", "--tls-key", "k", "--tls-cert=")
    assert code == 2
    code, _, err = run(capsys, "serve", "--check-config", "--history-page-default", "x")
    assert "history_page_default (flag" in err
    assert "larger" not in err


def test_checking_makes_no_file(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del environ
    audit, key = tmp_path / "audit", tmp_path / "key"
    argv = ("--dev", "--dev-key-file", str(key), "--audit-file", str(audit))
    assert run(capsys, "serve", "--check-config", *argv)[0] == 0
    assert [*tmp_path.iterdir()] == []


def test_help_lists_the_settings_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(GROUPS) <= set(Settings.model_fields)
    # Settings before the first group would have no heading.
    assert next(iter(Settings.model_fields)) in GROUPS
    _, out, _ = run(capsys, "serve", "--help")
    for first, heading in GROUPS.items():
        assert f"\n{heading}:\n  --{first.replace('_', '-')}" in out


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    assert "--history-max-messages" in out
    assert "[default: 100]" in out
    assert run(capsys, "token", "--help")[0] == 0


def test_a_new_api_key_is_printed_with_its_entry(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    del environ
    code, out, _ = run(
        capsys, "token", "--api-key", "--user", "gateway", "--service", "--org", "acme"
    )
    printed = json.loads(out)
    assert code == 0
    assert printed["entry"]["sha256"] == hash_key(printed["key"])
    assert printed["entry"]["kind"] == "service"
    assert printed["entry"]["orgs"] == ["acme"]


def test_the_entry_of_a_new_api_key_has_every_option_of_the_command(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    del environ
    given = ("--name", "Gate", "--avatar-url", "https://a.example/a.png", "--agent", "a1", "--bulk")
    _, out, _ = run(capsys, "token", "--api-key", "--user", "gateway", "--ttl", "2d", *given)
    entry = json.loads(out)["entry"]
    assert (entry["name"], entry["avatar_url"]) == ("Gate", "https://a.example/a.png")
    assert (entry["agents"], entry["bulk"]) == (["a1"], True)
    remaining = datetime.fromisoformat(entry["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=1) < remaining <= timedelta(days=2)
    _, out, _ = run(capsys, "token", "--api-key", "--user", "gateway")
    assert "expires_at" not in json.loads(out)["entry"]


def test_on_a_terminal_the_entry_of_a_new_api_key_is_printed_as_in_the_file(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del environ
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = run(capsys, "token", "--api-key", "--user", "gateway", "--service")
    assert code == 0
    assert "\nkeys:\n- id: gateway-" in out
    printed = yaml.safe_load(out)
    assert printed["keys"][0]["sha256"] == hash_key(printed["key"])


def test_wrong_usage_of_token_is_an_error(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del environ
    assert run(capsys, "token")[0] == 2
    assert run(capsys, "token", "--user", "a", "--service", "--admin")[0] == 2
    (tmp_path / "key").write_text("short", encoding="ascii")
    code, out, err = run(capsys, "token", "--user", "a", "--dev-key-file", str(tmp_path / "key"))
    assert (code, out) == (1, "")
    assert "development key" in err


@pytest.mark.parametrize("argv", [("--user", ""), ("--user", "a" * 129), ("--org", "")])
def test_a_token_with_an_empty_or_long_id_is_not_created(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    del environ
    code, out, err = run(capsys, "token", "--user", "a", *argv)
    assert (code, out) == (2, "")
    assert f"argument {argv[0]}: has {len(argv[1])} characters; write 1 to 128" in err


def test_each_command_is_described_in_one_line() -> None:
    for command in (commands.serve, commands.token):
        assert command.help
        assert "\n" not in command.help


async def test_a_file_of_settings_starts_a_server_with_tls_keys_audit_and_webhooks(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "both.pem"
    )
    key, digest = generate()
    keys = tmp_path / "keys.yaml"
    entry = {"id": "k1", "sha256": digest, "user": "gateway", "kind": "service"}
    keys.write_text(yaml.safe_dump({"keys": [entry]}), encoding="utf-8")
    received: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(request: web.Request) -> web.Response:
        await received.put(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hook = {
        "url": f"http://127.0.0.1:{runner.addresses[0][1]}/",
        "secret": "0123456789abcdef",
        "topics": ["system.**"],
    }
    audit = tmp_path / "audit.jsonl"
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    try:
        async with running_server(
            api_keys_file=keys,
            tls_cert=tmp_path / "both.pem",
            tls_key=tmp_path / "both.pem",
            audit_file=audit,
            audit_topics=["system.**"],
            webhooks=[hook],
        ) as server:
            assert server.http.startswith("https://")
            assert server.ws.startswith("wss://")
            headers = {"Authorization": f"Bearer {key}"}
            async with http_client(base_url=server.http, headers=headers, verify=trust) as client:
                for topic in ("system.a", "elsewhere"):
                    path = f"/v1/topics/{topic}/messages"
                    answer = await client.post(path, json={"data": {"hush": 1}})
                    assert answer.status_code == 201
                wrong = await client.get("/v1/session", headers={"Authorization": "hpk_x"})
                assert wrong.status_code == 401
                metrics = (await client.get("/metrics")).text
                assert "hanzo_pubsub_webhooks_delivered" in metrics
            async with asyncio.timeout(PATIENCE):
                posted = await received.get()
            assert posted["events"][0]["data"]["topic"] == "system.a"
            with pytest.raises(RuntimeError, match="development"):
                server.token()
    finally:
        await runner.cleanup()
    text = audit.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    assert {(r["event"], r["outcome"], r.get("topic")) for r in records} == {
        ("auth", "ok", None),
        ("auth", "denied", None),
        ("publish", "ok", "system.a"),
    }
    assert "hush" not in text
    assert key not in text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tls_cert": "none.pem", "tls_key": "none.pem"}, "tls_cert: none.pem cannot be read"),
        ({"audit_file": "/nowhere/audit.jsonl"}, "audit_file"),
        ({"audit_file": "{tmp}/a", "audit_topics": "a..b"}, "audit_topics"),
        (
            {"webhooks": [{"url": "http://x", "secret": "0" * 16, "topics": ["a..b"]}]},
            "webhooks",
        ),
        ({"api_keys_file": "/nowhere.yaml", "behind_tls_proxy": True}, "/nowhere.yaml"),
        ({"dev_key_file": "{tmp}/short"}, "too short"),
        ({"host": "192.0.2.1", "dev": False, "behind_tls_proxy": True}, "no client"),
        (
            {
                "host": "192.0.2.1",
                "iam_jwks_url": "http://127.0.0.1:1/",
                "behind_tls_proxy": True,
            },
            "this machine does not have the address; use one of its addresses, or 0.0.0.0",
        ),
    ],
)
async def test_a_file_or_address_that_cannot_be_used_is_an_error(
    tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    (tmp_path / "short").write_text("x", encoding="ascii")
    (tmp_path / "short").chmod(0o600)
    filled = {
        name: value.format(tmp=tmp_path) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    with pytest.raises(StartError, match=expected):
        await start(**filled)


async def test_two_servers_in_one_process_take_only_their_own_tokens() -> None:
    async with (
        running_server() as one,
        running_server() as other,
        http_client(headers={"Authorization": one.token()}) as client,
    ):
        statuses = [(await client.get(f"{s.http}/v1/session")).status_code for s in (one, other)]
        assert statuses == [200, 401]


async def start(**settings: object) -> None:
    async with running_server(**settings):
        pass


async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    tasks, audit = asyncio.all_tasks(), tmp_path / "audit.jsonl"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartError, match="in use"):
            await start(audit_file=audit, ws_port=taken.getsockname()[1])
    with pytest.raises(StartError, match="nowhere"):
        await start(audit_file=audit, api_keys_file="/nowhere.yaml", behind_tls_proxy=True)
    assert "audit" not in {thread.name for thread in threading.enumerate()}
    assert asyncio.all_tasks() == tasks


async def test_a_server_that_has_stopped_leaves_no_task_and_no_port() -> None:
    before = asyncio.all_tasks()
    async with running_server() as server, http_client(base_url=server.http) as client:
        await client.get("/healthz")
    assert asyncio.all_tasks() == before
    port = int(server.http.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_admin_injects_faults_where_that_is_enabled() -> None:
    async with running_server() as server, http_client(base_url=server.http) as client:
        fault = {"fault": "drop"}
        for token, status in ((server.admin_token(), 200), (server.token(), 403), ("x", 401)):
            headers = {"Authorization": token}
            answer = await client.post("/v1/faults", json=fault, headers=headers)
            assert answer.status_code == status
        headers = {"Authorization": server.admin_token()}
        wrong = await client.post("/v1/faults", json={"fault": "melt"}, headers=headers)
        assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_frame")
    async with running_server(faults=False) as server:
        async with http_client(base_url=server.http) as client:
            headers = {"Authorization": server.admin_token()}
            assert (await client.post("/v1/faults", json=fault, headers=headers)).status_code == 404
        with pytest.raises(RuntimeError, match="faults"):
            _ = server.faults


async def test_while_it_drains_a_server_is_not_ready() -> None:
    async with (
        running_server() as server,
        http_client(base_url=server.http) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        server.server._ready = False
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"]


async def test_a_server_is_not_ready_for_a_while_before_it_takes_nothing_new() -> None:
    async with (
        running_server(drain_notice=3_600_000) as server,
        http_client(base_url=server.http) as client,
    ):
        stopping = asyncio.create_task(server.server.stop())
        async with asyncio.timeout(PATIENCE):
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            # A client with a persistent connection sends its next request to another node.
            assert answer.headers["connection"] == "close"
            async with PubSubClient(server.ws, token=server.service_token()) as ps:
                await ps.publish("demo.x", {"data": 1})
            server.server.hurry()
            await stopping
        with pytest.raises(httpx.ConnectError):
            await client.get("/readyz")


async def test_a_second_signal_ends_at_once_what_is_spread_over_time(
    environ: dict[str, str],
) -> None:
    flags = ("--drain-timeout", "2h", "--drain-spread", "1h")
    async with program(*SERVE, *flags, environ=environ) as process, asyncio.timeout(PATIENCE):
        line = await ready(process)
        sockets = [await websockets.connect(line["ws"]) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        ends = [asyncio.create_task(each.wait_closed()) for each in sockets]
        _, waiting = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert len(waiting) == 2
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0
        await asyncio.gather(*ends)
        assert {each.close_code for each in sockets} == {1001}


async def test_sighup_reopens_the_audit_log(environ: dict[str, str], tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with program(*SERVE, "--audit-file", str(audit), environ=environ) as process:
        line = await ready(process)
        async with http_client(base_url=line["http"]) as client:
            headers = {"Authorization": "x"}
            await client.get("/v1/session", headers=headers)
            process.send_signal(signal.SIGHUP)
            await client.get("/v1/session", headers=headers)
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0
    assert len(audit.read_text(encoding="utf-8").splitlines()) == 2


async def test_clients_that_are_stuck_do_not_hold_up_the_end(environ: dict[str, str]) -> None:
    flags = ("serve", "--dev", "--http-port", "0", "--ws-port", "0", "--drain-timeout", "300ms")
    upgrade = (
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with program(*flags, environ=environ) as process, asyncio.timeout(PATIENCE):
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        http, ws = (int(ready[each].split(":")[2].split("/")[0]) for each in ("http", "ws"))
        writers = []
        for port, expected in (
            (http, b""),
            (http, b"GET /v1/ses"),
            (http, b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 500),
            (ws, b""),
            (ws, b"GET /w"),
            (ws, upgrade),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(expected)
            writers.append(writer)
            if expected.endswith(b"\n\r\n"):
                await reader.readline()
        process.terminate()
        assert await process.wait() == 0
        for writer in writers:
            writer.transport.abort()


def test_a_server_loads_only_the_clients_that_its_settings_name() -> None:
    code = (
        "import sys, pubsub_server.commands, pubsub_server.server\n"
        "heavy = {'redis', 'aiokafka', 'opentelemetry'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_growing_server_seldom_collects_everything() -> None:
    full = 0

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal full
        full += phase == "start" and info["generation"] == 2

    before = gc.get_threshold()
    gc.set_threshold(100, 10, before[2])
    try:
        tune_collector()
        gc.callbacks.append(count)
        grown = [[n] for n in range(90_000)]
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*before)
    assert (len(grown), full) == (90_000, 0)
