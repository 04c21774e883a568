"""Settings from flags, environment, file and defaults."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from pubsub_server import commands, preflight
from pubsub_server.settings.config import Settings
from pubsub_server.settings.sources import (
    MASK,
    PROTECTIVE,
    SettingsError,
    add_flags,
    dump,
    load,
)
from pubsub_server.settings.unread_variables import unread_variables

SPEC = Path(__file__).parents[2] / "spec" / "defaults.yaml"
SETTINGS_PAGE = SPEC.parents[1] / "docs" / "operate" / "settings.md"
SECRET = "0123456789abcdef-very-secret"


def hook(url: str) -> str:
    return json.dumps([{"url": url, "secret": SECRET}])


def parsed(*argv: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    options = vars(parser.parse_args(argv))
    options.pop("config")
    return options


def problems(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, environ, file)
    return str(caught.value)


def test_the_defaults_are_the_limits_of_the_spec() -> None:
    spec = yaml.safe_load(SPEC.read_text(encoding="utf-8"))
    settings = Settings()
    names = [name for name in spec["limits"] if name in Settings.model_fields]
    assert len(names) >= 15
    assert {name: getattr(settings, name) for name in names} == {
        name: spec["limits"][name] for name in names
    }


def test_every_setting_is_a_flag_a_variable_and_a_key_of_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    for name, field in Settings.model_fields.items():
        if name in {
            *(
                "audit_redis",
                "audit_kafka_tls",
                "node_timeout",
                "max_frame",
                "redis_cluster",
                "redis_durable",
            ),
        }:
            continue  # each needs another one
        kind: object = field.annotation
        flag = [f"--{name.replace('_', '-')}"]
        value: object
        if kind is bool:
            text, value = "true", True
        elif kind is int or kind is float:
            value = {"feed_timeout": 777, "worker_timeout": 7_777}.get(name, 77)
            text = str(value)
            flag.append(text)
        else:
            continue
        file.write_text(f"{name}: {text}\n", encoding="utf-8")
        for settings in (
            load(parsed(*flag)),
            load(environ={f"HANZO_PUBSUB_{name.upper()}": text}),
            load(file=file),
        ):
            assert getattr(settings, name) == value, name


@pytest.mark.parametrize(
    ("flag", "placeholder"),
    [("--tls-cert", "FILE"), ("--unauthenticated-per-address", "N"), ("--max-payload", "SIZE")],
)
def test_the_help_of_a_flag_shows_the_kind_of_its_value(flag: str, placeholder: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert f"  {flag} {placeholder}" in parser.format_help()


def test_an_audit_log_needs_a_place() -> None:
    assert "set one of them" in problems({"audit_topics": "org.**"})
    assert "set redis_url" in problems({"audit_redis": True, "audit_topics": "org.**"})
    settings = load({"audit_topics": "org.**", "audit_redis": True, "redis_url": "redis://h"})
    assert settings.audit_redis
    assert load({"audit_topics": "a", "audit_kafka": "h:1,i:2"}).audit_kafka == ("h:1", "i:2")


def test_a_flag_overrides_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text("http_port: 1\nws_port: 1\nmax_batch: 1\n", encoding="utf-8")
    environ = {"HANZO_PUBSUB_HTTP_PORT": "2", "HANZO_PUBSUB_WS_PORT": "2"}
    settings = load(parsed("--http-port", "3"), environ, file)
    assert (settings.http_port, settings.ws_port, settings.max_batch) == (3, 2, 1)


def test_the_six_variables_of_hip_56_work_and_the_prefixed_ones_override_them() -> None:
    environ = {
        "REDIS_URL": "redis://redis:6379",
        "IAM_URL": "https://hanzo.id",
        "IAM_JWKS_URL": "https://hanzo.id/.well-known/jwks.json",
        "HISTORY_MAX_MESSAGES": "7",
        "HISTORY_MAX_AGE": "60",
        "LOG_LEVEL": "WARN",
        "HANZO_PUBSUB_HISTORY_MAX_AGE": "30",
    }
    settings = load(environ=environ)
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://redis:6379"
    assert settings.iam_url == "https://hanzo.id"
    assert settings.jwks_url == "https://hanzo.id/.well-known/jwks.json"
    assert (settings.history_max_messages, settings.history_max_age) == (7, 30)
    assert settings.log_level == "warning"


def test_the_jwks_of_iam_is_found_from_its_address() -> None:
    assert load(environ={"IAM_URL": "https://hanzo.id/"}).jwks_url == (
        "https://hanzo.id/.well-known/jwks.json"
    )


def test_durations_and_sizes_take_units() -> None:
    settings = load(
        {"auth_deadline": "2s", "presence_grace": "250ms", "jwks_max_age": "5m"},
        {"HANZO_PUBSUB_MAX_PAYLOAD": "4 KiB", "HANZO_PUBSUB_HISTORY_MAX_AGE": "1h"},
    )
    assert settings.auth_deadline == 2_000
    assert settings.presence_grace == 250
    assert settings.jwks_max_age == 300_000
    assert settings.max_payload == 4_096
    assert settings.history_max_age == 3_600


def test_lists_take_commas_and_objects_take_json() -> None:
    settings = load(
        {
            "cors_origins": "https://a.example, https://b.example",
            "org_limits": '{"acme": 5}',
            "webhooks": hook("https://x.example/h"),
        }
    )
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert settings.org_limits == {"acme": 5}
    assert settings.webhooks[0].topics == ("**",)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("host", "0.0.0.0:8056", "without scheme, port and brackets"),
        ("host", "[::1]", "without scheme, port and brackets"),
        ("host", "https://pubsub.example.com", "without scheme, port and brackets"),
        ("host", "*", "an address such as 0.0.0.0 or ::"),
        ("http_port", "eighty", "expected a port from 1 to 65535, or 0 for a free one"),
        ("http_port", "70000", 'got "70000"; expected a port from 1 to 65535, or 0 for a free'),
        ("http_port", True, "a port"),
        ("auth_deadline", "0", "greater than or equal to 1"),
        ("history_page_max", "20000", "at most 10000"),
        ("dev", "perhaps", "true or false"),
        ("log_level", "loud", 'got "loud"; expected one of debug, info, warning, error'),
        ("backplane", "kafka", "memory"),
        ("org_limits", "acme=5", "JSON"),
        (
            "history_max_age",
            "1x",
            'got "1x"; expected seconds, for example 3600, or with a unit: 90s, 10m',
        ),
        ("auth_deadline", "1x", "expected milliseconds, for example 1500, or with a unit: 500ms"),
        pytest.param("auth_deadline", "9" * 400 + "s", "expected milliseconds", id="endless"),
        pytest.param("history_max_age", "9" * 400 + "h", "expected seconds", id="endless age"),
        ("redis_prefix", "two words", "letters, digits, _"),
        ("redis_prefix", "x" * 65, "letters, digits, _"),
        ("audit_kafka_topic", "{audit}", "letters, digits, _"),
        ("max_payload", "10MB", "expected bytes, for example 65536, or with a unit: 64KiB, 10MiB"),
        ("iam_url", "hanzo.id", "https://"),
        ("jwt_claims", '{"organisation": "owner"}', "orgs"),
        ("jwt_claims", '{"orgs": ""}', "the claim of orgs is empty; name it, or leave orgs out"),
        ("event_stream", "127.0.0.1:99999", "must have a port of at most 65535"),
        ("hub", "127.0.0.1:123456", "must have a port of at most 65535"),
        ("mesh_key", "short", "has 5 of at least 16 characters"),
        ("unauthenticated_per_address", "0", "equal to 1; expected a whole number"),
        ("unauthenticated_per_address", "many", 'got "many"; expected a whole number'),
    ],
)
def test_a_wrong_value_names_the_setting_its_source_and_what_is_accepted(
    name: str, value: object, expected: str
) -> None:
    flag = problems({name: value})
    assert flag.startswith(f"{name} (flag --{name.replace('_', '-')}): ")
    assert expected in flag
    if isinstance(value, str):
        variable = problems(environ={f"HANZO_PUBSUB_{name.upper()}": value})
        assert f"{name} (environment HANZO_PUBSUB_{name.upper()}): " in variable


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "listener_identities",
            '{"hubb": {"user": "x"}}',
            "listener_identities.hubb (flag --listener-identities): ",
        ),
        (
            "history_classes",
            '[{"topics": []}]',
            "history_classes[0].topics (flag --history-classes): got []; must not be empty",
        ),
        (
            "history_classes",
            '[{"topics": ["a"], "max_age": "5d"}]',
            'history_classes[0].max_age (flag --history-classes): got "5d"; must be seconds,'
            " for example 3600, or have a unit: 90s, 10m, 1h; ",
        ),
    ],
)
def test_a_wrong_entry_of_a_list_or_map_is_named(name: str, value: str, expected: str) -> None:
    assert problems({name: value}).startswith(expected)


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text("http_prot: 1\nws_port: x\n", encoding="utf-8")
    text = problems({"http_port": "y"}, {"HANZO_PUBSUB_AUTH_DEADLINE": "z"}, file)
    lines = text.splitlines()
    assert len(lines) == 4
    assert lines[0] == f"http_prot (file {file}): there is no such setting; did you mean http_port?"


def test_a_slip_in_a_variable_is_an_error_and_a_foreign_variable_is_not() -> None:
    text = problems(environ={"HANZO_PUBSUB_HISTORY_MAX_MESAGES": "5"})
    assert "did you mean history_max_messages?" in text
    load(environ={"HANZO_PUBSUB_URL": "ws://x", "HANZO_PUBSUB_TOKEN": "t", "HANZO_PUBSUB_": "1"})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("HANZO_PUBSUB_PORT", "did you mean HANZO_PUBSUB_HTTP_PORT or HANZO_PUBSUB_WS_PORT?"),
        ("HANZO_PUBSUB_VERBOSE", "leave it out"),
    ],
)
def test_a_variable_that_nothing_reads_is_a_warning_of_check_config(
    variable: str, hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "4")
    assert commands.serve(["--dev", "--check-config"]) == commands.OK
    (line,) = capsys.readouterr().err.splitlines()
    expected = f"{variable}: there is no such setting, so the server ignores it; {hint}"
    assert json.loads(line) == {"event": "warning", "message": expected}


def test_a_variable_that_resembles_a_setting_is_only_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_MESH_KEY_", "4")
    assert commands.serve(["--dev", "--check-config"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no such setting; did you mean mesh_key?" in line


def test_variables_of_clients_and_of_kubernetes_cause_no_warning() -> None:
    names = "URL TOKEN SPEED HTTP_PORT SERVICE_HOST SERVICE_PORT_HTTP MESH_SERVICE_PORT"
    given = {f"HANZO_PUBSUB_{name}": "x" for name in (*names.split(), "PORT_8056_TCP_ADDR")}
    urls = {f"HANZO_PUBSUB_{name}": "tcp://10.0.0.1:8056" for name in ("PORT", "PORT_8056_TCP")}
    assert [*unread_variables({**given, **urls, "HANZO_PUBSUB_HOSTS": "", "PORT": "4"})] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", "must be a mapping"),
        ("a: [\n", "is not YAML"),
        ("\x00", "is not YAML"),
        ("host: a\nhttp_port: 1\nhost: b\n", "line 3: `host` occurs twice"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_an_error(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text(text, encoding="utf-8")
    assert expected in problems(file=file)
    file.unlink()
    assert "cannot be read" in problems(file=file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("history_max_messages: 010\n", "line 1: YAML reads `010` as the number 8"),
        ("host: ::1\nhistory_max_age: 1:30\n", "line 2: YAML reads `1:30` as the number 90"),
        ("host: a\n\thttp_port: 1\n", "line 2, column 1: there is a tab; indent with spaces"),
        ("cors_origins: *\n", "the value begins with a special character; put it in quotes"),
        ("host: @a\n", "the value begins with a special character; put it in quotes"),
        ("webhooks: https://a.example\n", "webhooks (file pubsub.yaml): is text; expected a list"),
        ("redis_prefix: 5\n", "got 5; must be text; put it in quotes"),
        ("tls_cert: 5\n", "got 5; must be text; put it in quotes"),
        ("trusted_proxies: [nginx]\n", "give addresses or networks, 10.0.0.0/24"),
        ("cors_origins: ['*', 5]\n", "cors_origins[1] (file pubsub.yaml): got 5; must be text"),
        (
            "webhooks: [{url: https://a.example, topics: demo, topic: a}]\n",
            "webhooks[0].topics (file pubsub.yaml): must be a list; expected a list of"
            " {url, secret, topics, events}\n"
            "webhooks[0].secret (file pubsub.yaml): is missing; expected a list of"
            " {url, secret, topics, events}\n"
            "webhooks[0].topic (file pubsub.yaml): there is no such field; expected a list of"
            " {url, secret, topics, events}",
        ),
    ],
)
def test_a_slip_in_the_file_is_explained_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("pubsub.yaml")
    file.write_text(text, encoding="utf-8")
    found = problems(file=file)
    assert expected in found
    assert "expected text" not in found


def test_a_port_is_a_number_or_text_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text("event_stream: 9000\nbackplane: mesh\nmesh_listen: 7000\n", encoding="utf-8")
    settings = load(file=file)
    assert (settings.event_stream, settings.mesh_listen) == ("9000", "7000")


def test_relative_paths_begin_at_the_folder_of_the_file_and_elsewhere_at_the_current_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pubsub.yaml"
    text = "audit_topics: ['**']\naudit_file: a.jsonl\nrules: /etc/rules.yaml\njwt_issuer: a/b\n"
    file.write_text(text, encoding="utf-8")
    settings = load({"dev_key_file": "key"}, {"HANZO_PUBSUB_API_KEYS_FILE": "keys.yaml"}, file)
    assert settings.audit_file == tmp_path / "a.jsonl"
    assert settings.rules == Path("/etc/rules.yaml")
    assert settings.jwt_issuer == "a/b"
    assert settings.dev_key_file == Path("key")
    assert settings.api_keys_file == Path("keys.yaml")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text("# nothing\nhttp_port:\n", encoding="utf-8")
    assert load(file=file) == Settings()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"tls_cert": "c.pem"}, "tls_cert is set without tls_key"),
        ({"tls_key": "k.pem"}, "tls_key is set without tls_cert"),
        ({"audit_topics": "org.**"}, "audit_topics is set without audit_file"),
        ({"trusted_proxies": "10.0.0.1/24"}, "trusted_proxies"),
        ({"trusted_proxies": "balancer"}, "give addresses or networks"),
        (
            {"tls_cert": "c", "tls_key": "k", "behind_tls_proxy": True},
            "behind_tls_proxy is set with",
        ),
        ({"http_port": "80", "ws_port": "80"}, "http_port and ws_port are both 80"),
        ({"max_payload": "9MiB"}, "max_payload (9437184) is larger than max_frame (8388608)"),
        ({"redis_cluster": True}, "redis_cluster is set without redis_url"),
        ({"redis_url": "redis://[::1"}, "redis_url has an invalid host or port"),
        ({"redis_url": "redis://redis:port"}, "redis_url has an invalid host or port"),
        ({"redis_url": "redis://:a/b#c@redis"}, "in a user or password as %2F %3F %23 %40"),
        ({"redis_url": "http://redis"}, "redis_url must begin with redis://"),
        (
            {"worker_timeout": "30"},
            'worker_timeout (flag --worker-timeout): got "30"; must be at least 1s, or 0',
        ),
        ({"redis_durable": True}, "redis_durable is set without redis_url"),
        ({"cors_origins": "https://a.b,example.com"}, "example.com is not an origin"),
        ({"cors_origins": "https://a.b/"}, "https://a.b/ is not an origin"),
        ({"cors_origins": "https://A.b"}, "in lower case"),
        ({"history_max_age": "500ms"}, "is counted in whole seconds; give 1s or more"),
        (
            {"cors_origins": "https://*.a.b"},
            "https://*.a.b is a pattern; list each origin, or use * alone for all",
        ),
        (
            {"history_page_default": "9", "history_page_max": "8"},
            "(9) is larger than history_page_max (8); lower it, or raise history_page_max",
        ),
        (
            {"node_timeout": "3s"},
            "node_timeout (3000 ms) is less than twice node_heartbeat (2000 ms); raise",
        ),
        ({"history_classes": '[{"topics": "a"}]'}, "must be a list of patterns"),
        ({"webhooks": hook("ftp://x")}, "http:// or https://"),
        ({"webhooks": hook("http://a:b@x")}, "user or password"),
        ({"webhooks": '[{"url": "http://x", "secret": "short"}]'}, "at least 16"),
    ],
)
def test_settings_that_do_not_fit_together_are_an_error(
    flags: dict[str, object], expected: str
) -> None:
    assert expected in problems(flags)


def test_ports_that_are_free_to_choose_and_every_kind_of_origin_fit() -> None:
    settings = load({"http_port": 0, "ws_port": 0, "cors_origins": "*,null,https://a.b:1,app://x"})
    assert settings.cors_origins == ("*", "null", "https://a.b:1", "app://x")
    assert load({"history_max_age": "0s"}).history_max_age == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"presence_timeout": "15s"}, "server_ping_interval (15000 ms) is not less than"),
        ({"program_timeout": "60s"}, "disconnects hidden tabs"),
        ({"audit_file": "a"}, "audit_file is set without audit_topics"),
        ({"iam_url": "http://iam"}, "fetched from iam over http://"),
        ({"iam_jwks_url": "http://192.0.2.1/k"}, "set iam_jwks_url to an https:// URL"),
    ],
)
def test_a_likely_mistake_is_a_warning(given: dict[str, object], expected: str) -> None:
    (line,) = preflight.warnings(load(given))
    assert expected in line


@pytest.mark.parametrize(
    "name", ["rules", "tls_cert", "api_keys_file", "audit_file", "listener_identities"]
)
def test_an_empty_path_is_named_as_such(name: str, tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(f'{name}: ""\n', encoding="utf-8")
    empty = "is empty; give the path of a file, or leave the setting out"
    with pytest.raises(SettingsError) as of_file:
        load(file=file)
    assert str(of_file.value) == f"{name} (file {file}): {empty}"
    with pytest.raises(SettingsError) as of_flag:
        load({name: ""})
    assert str(of_flag.value) == f"{name} (flag --{name.replace('_', '-')}): {empty}"


@pytest.mark.parametrize("name", sorted(PROTECTIVE))
def test_an_empty_value_is_an_error_where_the_server_would_check_or_encrypt_less(
    name: str, tmp_path: Path
) -> None:
    variable = f"HANZO_PUBSUB_{name.upper()}"
    file = tmp_path / "pubsub.yaml"
    for text in ("", '""'):
        file.write_text(f"{name}: {text}\n", encoding="utf-8")
        assert problems(file=file).startswith(f"{name} (file {file}): ")
    assert problems(environ={variable: ""}).startswith(f"{name} (environment {variable}): ")
    assert problems({name: ""}).startswith(f"{name} (flag --{name.replace('_', '-')}): ")


def test_the_documentation_names_the_settings_that_must_not_be_empty() -> None:
    text = SETTINGS_PAGE.read_text(encoding="utf-8")
    named = text.partition("check or encrypt less:")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", named) == sorted(PROTECTIVE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('jwt_audience: ""', "name an audience, or leave the setting out to accept any"),
        ("jwt_audience: []", "name an audience, or leave the setting out to accept any"),
        ('jwt_audience: [""]', "name an audience, or leave the setting out to accept any"),
        ('jwt_audience: [app, " "]', "name an audience, or leave the setting out to accept any"),
        ('jwt_issuer: " "', "name the issuer, or leave the setting out to accept any"),
        ('cors_origins: " "', "list the origins, or use * for all"),
        ('cors_origins: [""]', "is not an origin"),
        ('mesh_key: "                "', "has 0 of at least 16 characters"),
        (
            'webhooks: [{url: "http://a", secret: "                "}]',
            "has 0 of at least 16 characters",
        ),
        ('signed_peers: [""]', "an empty text is not HOST:PORT; write broker.example:1634"),
        ('audit_kafka: [""]', "an empty text is not `host:port`"),
        ('trusted_proxies: [""]', "give addresses or networks"),
    ],
)
def test_a_blank_text_does_not_count_as_a_value(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "pubsub.yaml"
    file.write_text(text + "\n", encoding="utf-8")
    assert expected in problems(file=file)


def test_a_list_without_origins_allows_no_pages() -> None:
    assert load({"cors_origins": []}).cors_origins == ()


@pytest.mark.parametrize(
    "peer",
    [
        "broker",
        "broker:",
        "broker:0",
        "broker:65536",
        "/ip4/192.0.2.1/tcp/1634",
        "https://broker:1634",
        "*:1634",
        "2001:db8::1:1634",
    ],
)
def test_a_broker_of_signed_topics_has_a_host_and_a_port(peer: str) -> None:
    assert problems({"signed_peers": f"a.example:1, {peer}"}).startswith(
        f'signed_peers (flag --signed-peers): got "a.example:1, {peer}"; {peer} is not HOST:PORT;'
        " write broker.example:1634, IPv6 as [ADDRESS]:1634, or * for all"
    )
    peers = ("*", "[2001:db8::1]:65535", "a-b.example:1")
    assert load({"signed_peers": ",".join(peers)}).signed_peers == peers


def test_a_name_with_another_format_is_described_in_words() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"redis_prefix": "a b"})
    assert str(caught.value) == (
        'redis_prefix (flag --redis-prefix): got "a b"; has another format; expected 1 to 64'
        " letters, digits, _ and -"
    )


def test_the_path_of_a_file_is_shown_without_a_password() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"listener_identities": "redis://user:hush@host"})
    assert "hush" not in str(caught.value)


def test_a_usual_configuration_causes_no_warning() -> None:
    for given in ({}, {"iam_jwks_url": "http://127.0.0.1/k"}, {"iam_url": "https://iam"}):
        assert preflight.warnings(load(given)) == []


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({}, True),
        ({"workers": 2}, True),
        ({"history_max_bytes": "256MiB"}, False),
        ({"redis_url": "redis://redis"}, False),
        ({"dev": True}, False),
    ],
)
def test_more_history_than_the_memory_can_hold_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object], warned: bool
) -> None:
    monkeypatch.setattr(preflight, "memory_limit", lambda: 512 << 20)
    expected = (
        "history_max_bytes (1,073,741,824 bytes) is more than half of the memory that the server"
        " may use (536,870,912 bytes), so the kernel may end it when much is retained; lower"
        " history_max_bytes, or raise the memory limit"
    )
    assert preflight.warnings(load(given)) == ([expected] if warned else [])
    monkeypatch.setattr(preflight, "memory_limit", lambda: None)
    assert preflight.warnings(load(given)) == []


@pytest.mark.parametrize("given", [{"dev": True}, {"redis_url": "redis://redis"}])
def test_the_memory_is_not_measured_for_a_server_that_retains_little_in_it(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    measured: list[None] = []
    monkeypatch.setattr(preflight, "memory_limit", lambda: measured.append(None))
    assert preflight.warnings(load(given)) == []
    assert not measured


def test_an_access_rule_that_never_applies_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    who = {"authenticated": True}
    rules = [{"pattern": "demo.**", "require": who}, {"pattern": "demo.<room>", "require": who}]
    file.write_text(yaml.safe_dump({"rules": rules}), encoding="utf-8")
    assert preflight.warnings(load({"rules": str(file), "dev": True})) == [
        "rules: rule 2 of rules.yaml (`demo.<room>`) decides on no topic, because rule 1 of"
        " rules.yaml (`demo.**`) matches all of its topics; write it before that rule, or take it"
        " out"
    ]


def test_an_api_key_that_has_expired_is_a_warning_of_check_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.yaml"
    entry = {"id": "old", "sha256": "0" * 64, "user": "u", "expires_at": "2020-01-01T00:00:00Z"}
    file.write_text(yaml.safe_dump({"keys": [entry]}), encoding="utf-8")
    flags = ("--api-keys-file", str(file), "--behind-tls-proxy", "--check-config")
    assert commands.serve(flags) == commands.OK
    (line,) = capsys.readouterr().err.splitlines()
    warning = json.loads(line)
    assert warning["event"] == "warning"
    assert warning["message"].startswith("api_keys_file ")
    assert "the key old has expired" in warning["message"]


@pytest.mark.parametrize("missing", ["tls_cert", "tls_key"])
def test_a_missing_file_of_a_certificate_is_named(tmp_path: Path, missing: str) -> None:
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key")}
    for name, file in files.items():
        if name != missing:
            file.write_text("-----BEGIN CERTIFICATE-----\nPRIVATE KEY-----", encoding="ascii")
    (problem,) = preflight.problems(load({"iam_url": "https://iam", **files}))
    assert problem == f"{missing}: {files[missing]} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("flags", "module", "extra"),
    [
        (("--tracing",), "opentelemetry", "otel"),
        (("--tracing",), "opentelemetry.exporter", "otel"),
        (("--audit-kafka", "a:9092"), "aiokafka", "kafka"),
        (("--signed",), "wallycore", "signed"),
    ],
)
def test_an_extra_that_is_not_installed_is_found_before_the_start(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    module: str,
    extra: str,
) -> None:
    assert commands.serve(("--dev", *flags, "--check-config")) == 0
    capsys.readouterr()

    def found(name: str) -> object:
        if name.startswith(module):
            raise ModuleNotFoundError(name)
        return name

    monkeypatch.setattr(preflight, "find_spec", found)
    assert commands.serve(("--dev", *flags, "--check-config")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    message = json.loads(line)["message"]
    assert message.startswith(f"{flags[0][2:].replace('-', '_')}: {module}")
    assert message.endswith(f" is not installed; pip install 'hanzoai-pubsub-server[{extra}]'")


def test_a_certificate_without_its_key_is_one_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--dev", "--tls-cert", str(tmp_path / "none.pem"), "--check-config")
    assert commands.serve(flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "tls_cert is set without tls_key; TLS needs both"


def test_an_empty_path_of_the_file_of_settings_is_not_the_same_as_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_CONFIG", "")
    for flags, source in (((), "HANZO_PUBSUB_CONFIG"), (("--config", ""), "--config")):
        assert commands.serve(("--dev", *flags, "--check-config")) == 2
        message = json.loads(capsys.readouterr().err)["message"]
        assert message.startswith(f"{source} is empty; give the path of a file, or leave it out")


def test_a_value_after_a_switch_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.serve(("--tracing=no",)) == 2
    message = json.loads(capsys.readouterr().err)["message"]
    assert message.startswith("argument --tracing/--no-tracing: takes no value")


def test_the_effective_settings_are_printed_without_secrets(tmp_path: Path) -> None:
    text = dump(
        load(
            {
                "webhooks": hook("https://x.example/h"),
                "redis_url": "redis://u:hush@h",
                "audit_file": tmp_path / "a",
                "iam_jwks_url": "https://u:hush@iam.example/keys",
            }
        )
    )
    assert SECRET not in text
    assert "hush" not in text
    values = yaml.safe_load(text)
    assert list(values) == list(Settings.model_fields)
    assert values["webhooks"][0]["secret"] == MASK
    assert values["redis_url"] == MASK
    assert values["iam_jwks_url"] == f"https://{MASK}@iam.example/keys"
    assert values["auth_deadline"] == "5s"
    assert values["history_max_age"] == "1h"
    assert values["max_payload"] == "256KiB"


def test_the_printed_settings_are_a_file_with_the_same_settings(tmp_path: Path) -> None:
    settings = load({"presence_grace": "60", "history_max_age": "90", "max_frame": "1000001"})
    file = tmp_path / "printed.yaml"
    file.write_text(dump(settings), encoding="utf-8")
    assert "presence_grace: 60ms\n" in file.read_text(encoding="utf-8")
    assert load(file=file) == settings


def test_a_wrong_secret_is_not_repeated() -> None:
    assert "hushhush" not in problems({"webhooks": '[{"url": "http://x", "secret": "hushhush"}]'})
    assert "hushhush" not in repr(load({"redis_url": "redis://:hushhush@h"}))
    for url in ("ftp://u:hush@hushhush@iam.example/keys", "ftp://iam.example/keys?key=hushhush"):
        assert "hushhush" not in problems({"iam_jwks_url": url})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:hush@hush@iam.example/keys", f"https://{MASK}@iam.example/keys"),
        ("https://iam.example/k@ys?key=hush&a=b", f"https://iam.example/k@ys?{MASK}"),
        ("https://u@iam.example?key=hu/sh@x#y", f"https://{MASK}@iam.example?{MASK}#y"),
        ("https://iam.example:8443/keys", "https://iam.example:8443/keys"),
    ],
)
def test_a_url_is_printed_without_its_user_and_query(url: str, shown: str) -> None:
    assert yaml.safe_load(dump(load({"iam_jwks_url": url})))["iam_jwks_url"] == shown
