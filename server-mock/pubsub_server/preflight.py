"""What would keep a server from starting, found without starting one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import InvalidTopic
from pubsub_server.access import setup as access
from pubsub_server.access.setup import StartError
from pubsub_server.observe import audit_kafka
from pubsub_server.observe.topic_filter import TopicFilter
from pubsub_server.workers import bus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pubsub_server.settings.config import Settings


def problems(settings: Settings) -> list[str]:
    """Everything that is wrong with settings and the files that they name, one line each.

    Nothing is made, opened for writing or connected to: whether ports are free and IAM and Redis
    answer shows at the start.
    """
    return [line for look in _LOOKS for line in look(settings)]


def _said(step: Callable[[Settings], object]) -> Callable[[Settings], Iterator[str]]:
    def look(settings: Settings) -> Iterator[str]:
        try:
            step(settings)
        except StartError as error:
            yield from str(error).splitlines()

    return look


def _authenticator(settings: Settings) -> None:
    access.build_authenticator(settings, None)


def _dev_key(settings: Settings) -> None:
    # One that is not there yet is made at the start.
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
        yield f"audit_file {file}: cannot be written; make the folder, or let this user write there"


def _webhooks(settings: Settings) -> Iterator[str]:
    for number, hook in enumerate(settings.webhooks):
        try:
            TopicFilter(hook.topics)
        except InvalidTopic as error:
            yield f"webhooks[{number}].topics: {error.message} {error.remedy}"


_LOOKS: tuple[Callable[[Settings], Iterator[str]], ...] = (
    _said(access.check),
    _said(bus.check),
    _said(access.build_policy),
    _said(access.build_tls),
    _said(_authenticator),
    _said(_dev_key),
    _said(audit_kafka.build_tls),
    _audit,
    _webhooks,
)
