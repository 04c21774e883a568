"""Writes the generated parts of docs/, such as settings, metrics, references and modules.

A table is between `<!-- table: NAME -->` and `<!-- end of table -->`. The block after
`<!-- file: PATH -->` shows a file of the repository.

    python scripts/write_tables.py [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import difflib
import inspect
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trustme
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hanzoai.pubsub.claims import CLAIMS
from hanzoai.pubsub.settings.options import ClientOptions, ReceiveQueue, RetryOptions, SendQueue
from pubsub_server.auth.identity import Identity
from pubsub_server.backplanes.redis.backplane import RedisBackplane
from pubsub_server.backplanes.redis.layout import Layout
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.redis_clock import RedisClock
from pubsub_server.hub.faults import Clear, Delay, Drop, Evict, Expire, Freeze, Play, Refuse
from pubsub_server.observe.metrics import PREFIX, Metrics
from pubsub_server.settings.config import GROUPS, Settings
from pubsub_server.settings.kinds import metadata, written
from pubsub_server.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import module_lists, python_reference, typescript_reference  # noqa: E402
from scripts import typescript_tables as typescript  # noqa: E402

PLACE: Final = re.compile(
    r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL
)
SHOWN_FILE: Final = re.compile(
    r"(?P<head><!-- file: (?P<path>\S+) -->\n```[^\n]*\n).*?^```$", re.DOTALL | re.MULTILINE
)
ARGUMENTS: Final = (
    "token",
    "get_token",
    "transport",
    "allow_insecure",
    "name",
    "echo",
    "send_queue",
)


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    titles = list(head)
    lines = [f"| {' | '.join(line)} |\n" for line in (titles, *rows)]
    return "".join([lines[0], "|" + "---|" * len(titles) + "\n", *lines[1:]])


# ---------------------------------------------------------------- the server


def settings() -> str:
    """Return all settings of the server, under the headings of their groups."""
    groups: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for name in Settings.model_fields:
        if name in GROUPS:
            rows = groups[GROUPS[name]] = []
        rows.append(setting(name))
    return "\n".join(section(heading, below) for heading, below in groups.items())


def section(heading: str, rows: list[list[str]]) -> str:
    """Return one heading and its settings."""
    title = heading[:1].upper() + heading[1:]
    return f"### {title}\n\n" + markdown(("setting", "default", "meaning"), rows)


def setting(name: str) -> list[str]:
    """Return one row."""
    field = Settings.model_fields[name]
    default: object = field.get_default(call_default_factory=True)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    shown = plain(default)
    if isinstance(default, int) and not isinstance(default, bool):
        unit = written(default, metadata(field))
        shown = shown if unit == str(default) else f"`{unit}`"
    return [f"`{name}`", shown, str(field.description).replace("|", "\\|")]


def plain(value: object) -> str:
    """Format a default for readers; empty if there is none."""
    if value is None or value in ((), {}, ""):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"`{value}`"


def metrics() -> str:
    """Return every metric that the server defines."""
    text = asyncio.run(exposition())
    families = [f for f in text_string_to_metric_families(text) if f.name.startswith(PREFIX)]
    rows = (
        [
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            LABELS.get((family.name.removeprefix(PREFIX), family.type), ""),
            family.documentation,
        ]
        for family in families
    )
    return markdown(("metric", "type", "labels", "meaning"), rows)


async def exposition() -> str:
    """Return the metrics of a server with all features enabled."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder) / "both.pem"
        issued = trustme.CA().issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
        hook = {"url": "http://127.0.0.1:1", "secret": "0123456789abcdef", "topics": ["none"]}
        async with running_server(
            audit_topics=["none"],
            audit_file=Path(folder) / "audit",
            webhooks=[hook],
            tls_cert=certificate,
            tls_key=certificate,
            backplane="mesh",
            mesh_listen="0",
        ) as server:
            link = Link("redis://127.0.0.1:1", cluster=False, durable=False)
            settings = server.server.settings
            redis = RedisBackplane(link, Layout("x", 1), settings, "", 0, RedisClock())
            everything = (*server.server.instruments(), *redis.instruments())
            text, _ = Metrics(lambda: server.stats, everything).exposition()
            await redis.close()
    return text.decode()


def claims() -> str:
    """Return the claim for each field of an identity."""
    meanings = attributes(Identity) | {
        "expires_at": "Time at which the token expires; required in a JWT."
    }
    rows = [
        [f"`{claim}`", f"`{name}`", meaning(meanings[name])]
        for name, claim in {**CLAIMS, "expires_at": "exp"}.items()
    ]
    return markdown(("claim", "field", "meaning"), rows)


def fault_kinds() -> str:
    """Return every fault that you can request."""
    rows: list[list[str]] = []
    for kind in (Drop, Delay, Evict, Expire, Refuse, Freeze, Play, Clear):
        fields = ", ".join(f"`{name}`" for name in kind.model_fields if name != "fault")
        text = inspect.cleandoc(kind.__doc__ or "").splitlines()[0].replace("``", "`")
        rows.append([f"`{kind.__name__.lower()}`", fields, text])
    return markdown(("`fault`", "fields", "meaning"), rows)


# ---------------------------------------------------------------- the client


def attributes(kind: type) -> dict[str, str]:
    """Return the description of each attribute in the docstring of a class."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif line.strip() and found:
            found[name] += " " + line.strip()  # pyright: ignore[reportPossiblyUnboundVariable]
        elif found:
            break
    return found


def options(kind: type, *, skip: Iterable[str] = ()) -> str:
    """Return every option of a dataclass: name, default, meaning."""
    defaults: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        made = field.default_factory
        defaults[field.name] = made() if made is not dataclasses.MISSING else field.default
    rows = [
        [f"`{name}`", shown(defaults[name]), meaning(text)]
        for name, text in attributes(kind).items()
        if name not in skip
    ]
    return markdown(("option", "default", "meaning"), rows)


def shown(value: object) -> str:
    """Return the default of an option."""
    if value is None or value is dataclasses.MISSING:
        return ""
    if dataclasses.is_dataclass(value):
        return f"`{type(value).__name__}()`"
    if isinstance(value, bool | str):
        return f"`{value!r}`"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def meaning(text: str) -> str:
    """Remove the default from a description, because the table has a column for it."""
    shown = re.sub(r"[;,] default [^.]*(?:\.\d+[^.]*)?(?=\.|$)", "", text).replace("|", "\\|")
    return shown if shown.endswith(".") else shown + "."


def limits() -> str:
    """Return the limits of the service, from spec/defaults.yaml."""
    source = (ROOT / "spec" / "defaults.yaml").read_text(encoding="utf-8")
    values: dict[str, int] = yaml.safe_load(source)["limits"]
    rows: list[list[str]] = []
    for name, value in values.items():
        text, unit = LIMITS[name]
        amount = f"{value / 1000:g} s" if unit == "ms" else f"{value:,} {unit}".rstrip()
        rows.append([text, amount, f"`{name}`"])
    return markdown(("limit", "default", "name in `spec/defaults.yaml`"), rows)


LIMITS: Final[dict[str, tuple[str, str]]] = {
    "max_payload": ("JSON-encoded `data` of one message", "bytes"),
    "publish_rate_user": ("publishes of a user, per connection", "per second"),
    "publish_rate_service": ("publishes of a service, per connection", "per second"),
    "connections_per_user": ("open connections of a user", ""),
    "connections_per_org": ("open connections of an organization", ""),
    "max_topic": ("length of a topic", "bytes"),
    "auth_deadline": ("time from opening a WebSocket to `auth`", "ms"),
    "presence_timeout": ("idle timeout of a connection", "ms"),
    "presence_grace": ("time from a lost connection to `presence.leave`", "ms"),
    "expiring_notice": (
        "time from `auth.expiring` to the expiry, at most half of the remaining lifetime",
        "ms",
    ),
    "history_max_messages": ("retained messages per topic", ""),
    "history_max_age": ("age of a retained message", "s"),
    "history_page_default": ("messages per page of history", ""),
    "history_page_max": ("maximum messages per page of history", ""),
    "max_batch": ("messages per batch", ""),
    "max_subscriptions": ("patterns per connection", ""),
    "server_ping_interval": ("interval of the pings of the server", "ms"),
    "sse_keepalive": ("interval of the comments on an event stream", "ms"),
}

LABELS: Final = {
    ("connections", "gauge"): "`form`",
    ("refused", "counter"): "`code`",
    ("tokens_refused", "counter"): "`code`",
    ("local_messages", "counter"): "`listener`",
    ("denied_messages", "counter"): "`listener`",
    ("broken_connections", "counter"): "`reason`",
    ("info", "gauge"): "`version`",
    ("redis_seconds", "histogram"): "`call`",
    ("http_requests", "counter"): "`route`, `method`, `status`",
    ("http_request_seconds", "histogram"): "`route`",
}
"""Labels of metrics that have no samples yet."""

TABLES: Final[dict[str, Callable[[], str]]] = {
    "server-settings": settings,
    "metrics": metrics,
    "claims": claims,
    "faults": fault_kinds,
    "limits": limits,
    "client-options": lambda: options(
        ClientOptions, skip=("socket_url", "http_url", "http_derived", *ARGUMENTS)
    ),
    "send-queue": lambda: options(SendQueue),
    "receive-queue": lambda: options(ReceiveQueue),
    "retry": lambda: options(RetryOptions),
    "typescript-options": lambda: typescript.table("PubSubOptions"),
    "typescript-settings": lambda: typescript.table("Settings", ranges=True),
    "typescript-send-queue": lambda: typescript.table("SendQueue"),
    "typescript-receive-queue": lambda: typescript.table("ReceiveQueue"),
    "typescript-retry": lambda: typescript.table("RetryOptions", ranges=True),
    "typescript-subscribe": lambda: typescript.table("SubscribeOptions", "runtime/subscribing.ts"),
    "typescript-publish": lambda: typescript.table("PublishOptions", "runtime/publishing.ts"),
    "typescript-publish-many": lambda: typescript.table(
        "PublishManyOptions", "runtime/publishing.ts"
    ),
    "typescript-history": lambda: typescript.table("HistoryOptions", "runtime/http_operations.ts"),
    "typescript-write-stream": lambda: typescript.table("WriteStreamOptions", "streams/writer.ts"),
    "typescript-read-stream": lambda: typescript.table("ReadStreamOptions", "streams/reader.ts"),
    "typescript-request": lambda: typescript.table("RequestOptions", "requests/requester.ts"),
    "typescript-respond": lambda: typescript.table("RespondOptions", "requests/responder.ts"),
    "typescript-waiting": lambda: typescript.table("Waiting", "runtime/waiting.ts"),
    "modules-python": lambda: module_lists.lists("python/hanzoai/pubsub"),
    "modules-typescript": lambda: module_lists.lists("js/src"),
    "modules-server": lambda: module_lists.lists("server-mock/pubsub_server"),
    **{name: partial(python_reference.page, name) for name in python_reference.PAGES},
    **{name: partial(typescript_reference.page, name) for name in typescript_reference.PAGES},
}


def render(text: str) -> str:
    """Return a page with updated tables and files.

    Raises:
        KeyError: The page names an unknown table.
        OSError: The page names a file that does not exist.
    """
    text = PLACE.sub(lambda place: f"{place[1]}\n{TABLES[place['name']]()}\n{place[3]}", text)
    return SHOWN_FILE.sub(lambda place: f"{place['head']}{content(place['path'])}```", text)


def content(path: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Return every page that may have tables."""
    return [ROOT / "README.md", ROOT / "js" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the parts of docs/ that come from code.")
    parser.add_argument("--check", action="store_true", help="write nothing; show what is outdated")
    check: bool = parser.parse_args().check
    drifted = 0
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = render(old)
        if new == old:
            continue
        drifted += 1
        if check:
            lines = (old.splitlines(keepends=True), new.splitlines(keepends=True))
            sys.stdout.writelines(difflib.unified_diff(*lines, page.name, f"{page.name} again"))
        else:
            page.write_text(new, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")
    if check and drifted:
        print("Run `python scripts/write_tables.py` to update them.", file=sys.stderr)
    return 1 if check and drifted else 0


if __name__ == "__main__":
    sys.exit(main())
