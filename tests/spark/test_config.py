from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    InsecureUrl,
    InvalidOption,
    InvalidTopic,
    UsageError,
)
from hanzoai.pubsub.spark import (
    PubSubConfig,
    PubSubProgress,
    foreach_batch,
    foreach_partition,
    publish_arrow,
    publish_partition,
    register,
)
from hanzoai.pubsub.spark.credentials import Credentials
from hanzoai.pubsub.spark.options import sink_config

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:8056"
given: list[str] = []


def provide() -> str:
    return given.pop(0)


def explode() -> str:
    raise RuntimeError("s3cret")


def test_a_config_travels_and_is_the_same_where_it_arrives() -> None:
    config = PubSubConfig(URL, token_env="SOME_TOKEN", topic="jobs.a", ttl=3)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_config_holds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "s3cret")
    config = PubSubConfig(URL)
    assert Credentials(config).token() == "s3cret"
    assert b"s3cret" not in pickle.dumps(config)
    assert "s3cret" not in repr(config)


def test_the_url_comes_from_the_environment_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_URL", "wss://pubsub.example.com:8057/ws")
    assert PubSubConfig().base_url == "https://pubsub.example.com:8056"
    monkeypatch.delenv("HANZO_PUBSUB_URL")
    with pytest.raises(InvalidOption, match="HANZO_PUBSUB_URL"):
        PubSubConfig()


def test_the_http_url_of_the_environment_counts_unless_the_job_names_a_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_URL", "ws://127.0.0.1:9057/ws")
    monkeypatch.setenv("HANZO_PUBSUB_REST_URL", "http://127.0.0.1:9056/")
    assert PubSubConfig().base_url == "http://127.0.0.1:9056"
    assert PubSubConfig(URL).base_url == URL


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1_001}, "batch_size"),
        ({"max_in_flight": 65}, "max_in_flight"),
        ({"ids": "contents"}, "ids"),
        ({"on_error": "deadletter"}, "on_error"),
        ({"on_error": "ignore"}, "on_error"),
        ({"on_error": None}, "on_error"),
        ({"on_oversize": "cut"}, "on_oversize"),
        ({"ttl": -1}, "ttl"),
        ({"type": ""}, "type"),
        ({"token_file": "a", "token_env": "B"}, "token_env"),
        ({"credential_provider": "os.environ"}, "credential_provider"),
        ({"url": "http://a:b@127.0.0.1"}, "url"),
        ({"topc": "jobs.a"}, "topc"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any], field: str) -> None:
    settings: dict[str, Any] = {"url": URL, **wrong}
    with pytest.raises(InvalidOption) as caught:
        PubSubConfig(**settings)
    assert caught.value.field == field


def test_an_unknown_setting_gets_the_nearest_name_or_all_names() -> None:
    settings: dict[str, Any] = {"topc": "jobs.a"}
    with pytest.raises(InvalidOption) as near:
        PubSubConfig(URL, **settings)
    assert near.value.remedy == "Did you mean `topic`?"
    with pytest.raises(InvalidOption, match="has the options `url`, `token_file`"):
        PubSubConfig(URL, quality=1)  # type: ignore[call-arg]


def test_topics_of_a_config_are_topics() -> None:
    with pytest.raises(InvalidTopic):
        PubSubConfig(URL, topic="jobs.*")
    with pytest.raises(InvalidTopic):
        PubSubConfig(URL, on_error="deadletter:jobs..x")


def test_a_token_is_sent_unencrypted_only_to_this_machine() -> None:
    with pytest.raises(InsecureUrl, match="http:// would send"):
        PubSubConfig("http://pubsub.example.com")
    assert PubSubConfig("http://pubsub.example.com", allow_insecure=True)


def test_options_are_read_whatever_their_case() -> None:
    config = sink_config(
        {
            "URL": URL,
            "tokenfile": "/t",
            "BATCHSIZE": "20",
            "requestTimeoutMs": "1500",
            "statslog": "TRUE",
            "checkpointLocation": "/c",
        }
    )
    assert (config.token_file, config.batch_size) == ("/t", 20)
    assert (config.request_timeout, config.log_stats) == (1.5, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokenfil": "x"}, "Did you mean `tokenFile`"),
        ({"token": "s3cret"}, "tokenFile"),
        ({"batchSize": "many"}, "`batchSize` is not a whole number"),
        ({"batchSize": "0"}, "`batchSize` is out of range"),
        ({"batchSize": "9" * 5_000}, "`batchSize` is out of range. Give rows from 1 to 1000"),
        ({"ttl": "-" + "9" * 5_000}, "`ttl` is out of range. Give seconds from 0"),
        ({"maxRowsPerSecond": "x"}, "`maxRowsPerSecond` is not a number"),
        ({"statsLog": "perhaps"}, "`statsLog`"),
        ({"path": "/x"}, "without a path"),
        ({"provider": "hanzo-pubsub"}, "a topic cannot be a table"),
        ({"owner": "root"}, "a topic cannot be a table"),
        ({"option.url": URL}, "a topic cannot be a table"),
        ({"checkpointLocaton": "/x"}, "Did you mean `checkpointLocation`"),
        ({"url": "https://u:s3cret@example.com"}, "Give `tokenFile`, `tokenEnv` or"),
        ({"url": "https://example.com?token=s3cret"}, "Give `tokenFile`, `tokenEnv` or"),
        ({"url": "http://pubsub.example.com"}, "`allowInsecure=true`"),
        ({"topic": "a.*"}, "Option `topic`"),
        ({"onError": "deadletter:a.*"}, "Option `onError`"),
        ({"tokenFile": ""}, "Give the path of a file that contains the token"),
        ({"tokenEnv": ""}, "Give the name of the environment variable that contains the token"),
        ({"credentialProvider": ""}, "`my_package.tokens:current`"),
        ({"type": ""}, "such as `result`"),
        ({"type": " \t"}, "`type` is blank"),
        ({"type": "a\nb"}, "not a text of at most 128 printable characters"),
        ({"tokenFile": "/run/secrets/token\n"}, "Give the path of a file that contains the token"),
        ({"idNamespace": ""}, "Name the job"),
    ],
)
def test_a_wrong_option_is_named_as_in_spark(options: dict[str, str], words: str) -> None:
    with pytest.raises((InvalidOption, InvalidTopic)) as caught:
        sink_config({"url": URL, **options})
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_options_that_spark_lost_are_not_sought_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANZO_PUBSUB_URL", raising=False)
    with pytest.raises(InvalidOption, match="Spark passes no options of a table"):
        sink_config({})
    with pytest.raises(InvalidOption) as caught:
        sink_config({"topic": "jobs.a"})
    assert "table" not in caught.value.remedy


def test_a_token_file_is_read_again_when_its_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("Bearer one\n")
    credentials = Credentials(PubSubConfig(URL, token_file=str(file)))
    assert credentials.token() == "one"
    file.write_text("two\n")
    assert credentials.token() == "one"
    assert credentials.token(refused="one") == "two"
    assert credentials.token(refused="one") == "two"


def test_a_token_file_that_is_just_being_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials = Credentials(PubSubConfig(URL, token_file=str(file)))
    assert credentials.token() == "one"
    file.write_text("")
    assert credentials.token(refused="one") == "one"
    file.write_text("two")
    assert credentials.token(refused="one") == "two"


def test_a_provider_is_asked_once_until_its_token_is_refused() -> None:
    given[:] = ["one", "two"]
    credentials = Credentials(PubSubConfig(URL, credential_provider=f"{__name__}:provide"))
    assert [credentials.token(), credentials.token()] == ["one", "one"]
    assert credentials.token(refused="one") == "two"


def test_the_error_about_an_incomplete_credential_does_not_contain_its_secret(
    tmp_path: Path,
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    wheres: tuple[dict[str, Any], ...] = (
        {"token_file": str(tmp_path / "none")},
        {"token_file": str(empty)},
        {"token_env": "HANZO_PUBSUB_NO_SUCH"},
        {"credential_provider": "no_such_module:token"},
        {"credential_provider": f"{__name__}:explode"},
    )
    for where in wheres:
        with pytest.raises(AuthError) as caught:
            Credentials(PubSubConfig(URL, **where)).token()
        assert caught.value.field == next(iter(where))
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"), [("", "is empty"), ("Bearer \n", "is empty"), ("a b", "has spaces")]
)
def test_a_token_file_without_a_token_is_to_be_filled_where_it_is_read(
    tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(AuthError) as caught:
        Credentials(PubSubConfig(URL, token_file=str(file))).token()
    assert caught.value.message.startswith(f"The file of `token_file` {problem}")
    assert "into it, on every executor" in caught.value.remedy


def test_a_token_file_that_cannot_be_read_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="file of `token_file` cannot be read"):
        Credentials(PubSubConfig(URL, token_file=str(tmp_path / "none"))).token()


@pytest.mark.parametrize("where", [{"token_file": "/none"}, {"token_env": "HANZO_PUBSUB_NO_SUCH"}])
def test_a_missing_token_is_not_sought_on_executors_alone(where: dict[str, Any]) -> None:
    with pytest.raises(AuthError) as caught:
        Credentials(PubSubConfig(URL, **where)).token()
    assert "executor" not in caught.value.message
    assert "on the driver, too" in caught.value.remedy


def test_importing_the_helpers_imports_no_spark() -> None:
    program = (
        "import sys, hanzoai.pubsub.spark as s; s.publish_partition;"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_missing_spark_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.delitem(sys.modules, "hanzoai.pubsub.spark.data_source", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'hanzoai\.pubsub\[spark\]'"):
        register(object())


def test_the_module_that_spark_looks_up_never_raises() -> None:
    program = (
        "import sys; sys.modules['pyspark.sql.datasource'] = None;"
        "import pyspark_hanzo_pubsub as m; assert not hasattr(m, 'DefaultSource')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("config", [None, {"topic": "demo.jobs"}, "https://pubsub.example.com"])
def test_the_driver_rejects_what_is_not_a_config_before_a_task_starts(config: Any) -> None:
    for make in (
        lambda: foreach_partition(config),
        lambda: foreach_batch(config, "orders"),
        lambda: publish_arrow(config),
        lambda: publish_partition([], config),
        lambda: PubSubProgress(None, "demo.jobs", config),
    ):
        with pytest.raises(InvalidOption, match=r"`config` is .*, not PubSubConfig"):
            make()
