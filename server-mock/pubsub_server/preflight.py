"""Finds problems that would prevent a start, without starting a server."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hanzoai.pubsub.errors import InvalidTopic
from pubsub_server.access import setup as access
from pubsub_server.access.setup import StartError
from pubsub_server.auth import api_keys
from pubsub_server.backplanes.mesh import opening
from pubsub_server.contract import setup as contract
from pubsub_server.observe import audit_kafka
from pubsub_server.observe.topic_filter import TopicFilter
from pubsub_server.settings.config import LOOPBACK
from pubsub_server.settings.conflicts import redis_url_conflicts
from pubsub_server.shared.certificate_files import validity_problem
from pubsub_server.shared.memory_limit import memory_limit
from pubsub_server.workers import bus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pubsub_server.settings.config import Settings

HIDDEN_TAB: Final = 75_000
"""Milliseconds for a ping and its answer on a page whose timers run once per minute."""


EXTRAS: Final = {
    "tracing": ("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    "audit_kafka": ("kafka", ("aiokafka",)),
    "signed": ("signed", ("wallycore", "sha3")),
}
"""Extras of the package that a setting needs, with their modules."""


def problems(settings: Settings) -> list[str]:
    """All problems of the settings and of the files that they name, one line each.

    It creates nothing, opens nothing for writing and connects to nothing: only a start shows
    whether ports are free, and IAM and Redis answer.
    """
    return [line for check in _CHECKS for line in check(settings)]


def warnings(settings: Settings) -> list[str]:
    """Warnings about valid settings that are probably a mistake, one line each."""
    return [*_doubts(settings)]


def _doubts(settings: Settings) -> Iterator[str]:
    if settings.server_ping_interval >= settings.presence_timeout:
        yield (
            f"server_ping_interval ({settings.server_ping_interval} ms) is not less than"
            f" presence_timeout ({settings.presence_timeout} ms), so the server disconnects"
            " clients that only listen; set at most half of it"
        )
    if 0 < settings.program_timeout < HIDDEN_TAB:
        yield (
            f"program_timeout ({settings.program_timeout} ms) is less than {HIDDEN_TAB} ms, so the"
            " server disconnects hidden tabs: browsers let them send a ping only once per minute"
        )
    if settings.audit_file is not None and not settings.audit_topics:
        yield (
            "audit_file is set without audit_topics, so only sign-ins are recorded; set"
            " audit_topics"
        )
    url = urlsplit(settings.jwks_url or "")
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        yield (
            f"the keys of IAM are fetched from {url.hostname} over http://, where anyone on the"
            " network can insert other keys; set iam_jwks_url to an https:// URL"
        )
    yield from _memory(settings)
    yield from _hidden_rules(settings)
    if settings.api_keys_file is not None:
        yield from _expired_keys(settings.api_keys_file)
    for name in ("tls_cert", "mesh_tls_cert", "audit_kafka_cert"):
        certificate: Path | None = getattr(settings, name)
        if certificate is not None:
            yield from _validity(name, certificate)


def _memory(settings: Settings) -> Iterator[str]:
    if settings.dev or settings.on_redis:
        return
    limit = memory_limit()
    if limit is not None and settings.history_max_bytes > limit // 2:
        yield (
            f"history_max_bytes ({settings.history_max_bytes:,} bytes) is more than half of the"
            f" memory that the server may use ({limit:,} bytes), so the kernel may end it when much"
            " is retained; lower history_max_bytes, or raise the memory limit"
        )


def _hidden_rules(settings: Settings) -> Iterator[str]:
    try:
        policy = access.build_policy(settings)
    except StartError:
        # This prevents a start, so it is reported as a problem.
        return
    for rule, earlier in policy.hidden():
        yield (
            f"rules: {rule.title} decides on no topic, because {earlier.title} matches all of its"
            " topics; write it before that rule, or take it out"
        )


def _validity(name: str, certificate: Path) -> Iterator[str]:
    try:
        problem = validity_problem(name, certificate)
    except (OSError, ValueError):
        # This prevents a start, so it is reported as a problem.
        return
    if problem is not None:
        yield problem


def _expired_keys(file: Path) -> Iterator[str]:
    try:
        keys = api_keys.load(file)
    except api_keys.ApiKeysError:
        # This prevents a start, so it is reported as a problem.
        return
    for _, identity in keys.values():
        if identity.expires_at is not None and identity.expires_at <= time.time() * 1000:
            yield (
                f"api_keys_file {file}: the key {identity.key_id} has expired; take it out, or set"
                " its new expires_at"
            )


def _problems_of(step: Callable[[Settings], object]) -> Callable[[Settings], Iterator[str]]:
    def check(settings: Settings) -> Iterator[str]:
        try:
            step(settings)
        except StartError as error:
            yield from str(error).splitlines()

    return check


def _contract(settings: Settings) -> None:
    if settings.contract is not None:
        contract.inspector(settings.contract)


def _authenticator(settings: Settings) -> None:
    access.build_authenticator(settings, None)


def _dev_key(settings: Settings) -> None:
    # A file that does not exist is created at the start.
    if settings.dev_key_file is not None and settings.dev_key_file.exists():
        access.build_dev_key(settings)


def _audit(settings: Settings) -> Iterator[str]:
    try:
        TopicFilter(settings.audit_topics)
    except InvalidTopic as error:
        yield f"audit_topics: {error.message} {error.remedy}"
    file = settings.audit_file
    if file is None:
        return
    if file.is_dir():
        yield f"audit_file {file}: is a directory"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        yield (
            f"audit_file {file}: cannot be written; create the folder, or give this user write "
            "permission"
        )


def _webhooks(settings: Settings) -> Iterator[str]:
    for number, hook in enumerate(settings.webhooks):
        try:
            TopicFilter(hook.topics)
        except InvalidTopic as error:
            yield f"webhooks[{number}].topics: {error.message} {error.remedy}"


def _tls(settings: Settings) -> None:
    if settings.tls_cert is not None and settings.tls_key is not None:
        access.build_tls(settings.tls_cert, settings.tls_key, settings.listener_client_ca)


def _extras(settings: Settings) -> Iterator[str]:
    for name, (extra, modules) in EXTRAS.items():
        if not getattr(settings, name):
            continue
        missing = [each for each in modules if not _is_installed(each)]
        if missing:
            yield (
                f"{name}: {missing[0]} is not installed;"
                f" pip install 'hanzoai-pubsub-server[{extra}]'"
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains the module
        return False


def _mesh_tls(settings: Settings) -> Iterator[str]:
    try:
        opening.build_tls(settings)
    except opening.UnusableError as error:
        yield f"{error.setting}: {error}"


def _redis(settings: Settings) -> Iterator[str]:
    if settings.redis_url is None:
        return
    url = settings.redis_url.get_secret_value()
    if any(redis_url_conflicts(url)):
        return
    # Only a server on Redis loads its client.
    from pubsub_server.backplanes.redis.url import UrlError, check_url

    try:
        check_url(url)
    except UrlError as error:
        yield f"redis_url: {error}"


_CHECKS: tuple[Callable[[Settings], Iterator[str]], ...] = (
    _problems_of(access.check),
    _problems_of(bus.check),
    _problems_of(access.build_policy),
    _problems_of(_tls),
    _problems_of(_contract),
    _problems_of(_authenticator),
    _problems_of(_dev_key),
    _problems_of(audit_kafka.build_tls),
    _extras,
    _redis,
    _mesh_tls,
    _audit,
    _webhooks,
)
