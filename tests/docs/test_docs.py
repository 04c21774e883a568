"""The examples in README and docs/ work as shown, and all names in them exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.testing import ThreadedServer
from tests.docs.blocks import PACKAGE_PAGE, PAGES, ROOT, WHOLE, anchors, blocks, links
from tests.docs.model import model_api
from tests.docs.page import Page, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_RUN_AT_MOST = 21
_ADDRESS = re.compile(r"https://pubsub\.hanzo\.ai/docs/([\w/-]+)/(?:#([\w-]+))?")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("key") / "dev.key"


@pytest.fixture
def server(key_file: Path) -> Iterator[ThreadedServer]:
    settings: dict[str, Any] = {
        "publish_rate_user": 10_000,
        "publish_rate_service": 10_000,
        "faults": True,
        "event_stream": "0",
        "hub": "0",
        "listener_identities": {
            name: {"user": "docs", "kind": "service"} for name in ("event_stream", "hub")
        },
    }
    with ThreadedServer(dev_key_file=key_file, **settings) as running:
        yield running


@pytest.fixture(scope="session")
def model() -> Iterator[dict[str, str]]:
    with model_api() as variables:
        yield variables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with only the prerequisites of the pages: an environment, a certificate, a key."""
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    certificate = trustme.CA().issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(tmp_path / "cert.pem"), append=number > 0)
    key = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    (tmp_path / "pubsub-key.pem").write_bytes(key)
    return tmp_path


# A block that is stopped during an iteration cannot unsubscribe.
@pytest.mark.filterwarnings("ignore:.* was dropped without unsubscribe:ResourceWarning")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", [p for p in (*PAGES, PACKAGE_PAGE) if blocks(p)], ids=_name)
async def test_the_programs_of_a_page_run(
    page: Path,
    server: ThreadedServer,
    folder: Path,
    key_file: Path,
    model: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {**environment(server, folder, key_file), **model}
    for name, value in environ.items():
        if name.startswith("HANZO_PUBSUB_"):
            monkeypatch.setenv(name, value)
    await Page(server, folder, environ).run(page, blocks(page))


def test_the_python_programs_of_the_pages_pass_a_type_checker(tmp_path: Path) -> None:
    for page in WHOLE:
        home = tmp_path / f"{page.parent.name}_{page.stem}"
        home.mkdir()
        for block in blocks(page):
            if block.language == "python" and block.directive != "not run":
                name = block.title or f"line_{block.line}.py"
                (home / name).write_text(block.text, encoding="utf-8")
    settings = {
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "python"), str(ROOT / "server-mock")],
        "reportMissingModuleSource": False,
        "reportMissingTypeStubs": False,
        "reportMissingTypeArgument": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", tmp_path, "--pythonpath", sys.executable],
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout


PRELUDES_AT_MOST = 2


def test_samples_are_whole_programs_on_all_but_a_few_pages() -> None:
    with_prelude = [str(p.relative_to(ROOT)) for p in PAGES if p not in WHOLE]
    assert "README.md" in with_prelude, "the samples of HIP-56 are shown unchanged"
    assert len(with_prelude) <= PRELUDES_AT_MOST, with_prelude


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    left_out = [b for page in PAGES for b in blocks(page) if b.directive == "not run"]
    assert all(len(block.value) > 10 for block in left_out)
    assert len(left_out) <= NOT_RUN_AT_MOST, [block.place for block in left_out]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https:", "http:", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        assert file.is_relative_to(ROOT), link
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), link


def test_addresses_in_errors_lead_to_pages_and_headings_that_exist() -> None:
    named: set[tuple[str, str]] = {("errors", code) for code in CODES}
    for folder in ("python/hanzoai", "server-mock/pubsub_server", "js/src"):
        for file in (ROOT / folder).rglob("*.[pt][sy]*"):
            if file.suffix in {".py", ".ts", ".tsx"}:
                named.update(_ADDRESS.findall(file.read_text(encoding="utf-8")))
    assert {("wire", ""), ("typescript", "client-certificates")} <= named
    for page, anchor in sorted(named):
        file = ROOT / "docs" / f"{page}.md"
        assert file.exists(), page
        ids = re.findall(r'<a id="(\w+)">', file.read_text(encoding="utf-8"))
        assert not anchor or anchor in {*anchors(file), *ids}, (page, anchor)


def test_pages_of_packages_link_only_to_the_web() -> None:
    for page in (PACKAGE_PAGE, ROOT / "js" / "README.md", ROOT / "server-mock" / "README.md"):
        assert [link for link in links(page) if not link.startswith("https://")] == [], page


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_code_in_a_table_ends_in_the_cell_in_which_it_begins(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if cell.count("`") % 2] == []


def test_tables_that_come_from_code_are_current() -> None:
    script = ROOT / "scripts" / "write_tables.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _numbers() -> list[tuple[str, str]]:
    seconds = {name: f"{value // 1000}" for name, value in asdict(CLIENT).items()}
    limits = asdict(LIMITS)
    limit = {name: f"{value // 1000}" for name, value in limits.items()}
    rate = f"{limits['publish_rate_user']} publishes per second on each connection of a user"
    service = limits["publish_rate_service"]
    return [
        ("README.md", f"{limits['max_payload'] // 1024} KB per message, {rate} and {service}"),
        ("README.md", f"{limits['connections_per_user']} connections per user"),
        ("README.md", f"{limits['history_max_messages']} messages per topic, for one hour"),
        ("docs/replay.md", f"topic: {limits['history_max_messages']}, for an hour"),
        ("docs/replay.md", f"(of `history_page`, {CLIENT.history_page})"),
        ("docs/replay.md", f"`overlap` of {seconds['overlap']} s"),
        ("docs/protocol.md", f"`overlap` ({seconds['overlap']} s)"),
        ("docs/protocol.md", f"remembers {CLIENT.remembered_ids:,} ids"),
        ("docs/publish.md", f"up to {limits['max_payload']:,} bytes"),
        ("docs/publish.md", f"`operation_timeout` ({seconds['operation_timeout']} s)"),
        ("docs/publish.md", f"{rate}, and {service} on each connection of a service"),
        ("docs/publish.md", f"a batch of over {limits['max_batch']:,} messages"),
        ("docs/subscribe.md", f"after {CLIENT.fallback_failures} failed openings"),
        ("docs/subscribe.md", f"after {seconds['fallback_after']} s without an open WebSocket"),
        ("docs/subscribe.md", f"after {CLIENT.short_life} failed openings in a row"),
        ("docs/presence.md", f"`leave` after {limit['presence_grace']} s of grace"),
        ("docs/presence.md", f"after {limit['presence_timeout']} s without a byte"),
        ("docs/tokens.md", f"`fetch_timeout`, {seconds['fetch_timeout']} s"),
        ("docs/tokens.md", f"warns {limit['expiring_notice']} s ahead"),
        ("docs/tokens.md", f"`refresh_margin` ({seconds['refresh_margin']} s)"),
        ("docs/rest.md", f"| {limits['history_page_default']} | 1 to {limits['history_page_max']}"),
        ("docs/rest.md", f"The server sends a comment every {limit['sse_keepalive']} s"),
        ("docs/operate/access.md", f"`sse_keepalive` ({limit['sse_keepalive']} s)"),
    ]


@pytest.mark.parametrize(("page", "expected"), _numbers())
def test_numbers_in_the_text_are_the_defaults(page: str, expected: str) -> None:
    assert expected in (ROOT / page).read_text(encoding="utf-8")


def test_a_user_of_a_development_server_may_use_the_topics_of_the_migrated_programs() -> None:
    page = (ROOT / "docs" / "migrations.md").read_text(encoding="utf-8")
    after = re.findall(r"\nAfter[^\n]*:\n\n```\w+[^\n]*\n(.*?)```", page, re.DOTALL)
    topics = [re.findall(r"(?:subscribe|publish)\(f?[\"']([^\"']+)", program) for program in after]
    assert all(topics)
    assert len(topics) == page.count("\n## From ")
    assert [topic for each in topics for topic in each if not topic.startswith("demo.")] == []


def test_the_chart_gets_its_settings_as_texts() -> None:
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
    values = re.findall(r"--set settings\.\w+=([^\s`]+)", page)
    assert values
    # Helm reads these as switches and numbers, which the schema of the chart rejects.
    assert [each for each in values if type(yaml.safe_load(each)) is not str] == []
    assert re.findall(r"(?<!--set-string )(?<!--set )\bsettings\.[A-Z_]+=", page) == []


def test_the_reference_shows_what_inherited_methods_of_a_class_return() -> None:
    page = (ROOT / "docs" / "reference" / "python-protocols.md").read_text(encoding="utf-8")
    returned = dict(re.findall(r"^await (\w+)\.recv\(.*\) -> (.+)$", page, re.MULTILINE))
    assert returned["EventSubscription"] == "Event"
    assert returned["HubSubscription"] == "HubMessage"


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_the_readme_links_every_page() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    # The index page is the README itself.
    pages = {page for page in PAGES[1:] if page.name != "index.md"}
    assert pages - linked == set()


@pytest.mark.parametrize("sample", ["hip56.py", "hip56.ts"])
def test_the_readme_has_the_samples_of_hip_56_unchanged(sample: str) -> None:
    text = (ROOT / "tests" / "interop" / "samples" / sample).read_text(encoding="utf-8")
    assert text.strip() in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_of_make_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert named <= targets


def test_every_path_of_the_http_api_is_named() -> None:
    text = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    paths = yaml.safe_load((ROOT / "spec" / "openapi.yaml").read_text(encoding="utf-8"))["paths"]
    assert [path for path in paths if f"{path}`" not in text and f"{path}?" not in text] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
