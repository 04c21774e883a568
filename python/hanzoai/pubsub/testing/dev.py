"""Tokens for a development server that is already running."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hanzoai.pubsub.errors import InvalidOption, UsageError
from hanzoai.pubsub.settings.checks import check_choice
from hanzoai.pubsub.testing.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_FILE = "HANZO_PUBSUB_DEV_KEY_FILE"


def dev_token(
    user: str = "alice",
    *,
    kind: Kind = "user",
    ttl: float | timedelta = 3600,
    orgs: Sequence[str] = (),
    name: str | None = None,
    sessions_owned: Sequence[str] = (),
    sessions_shared: Sequence[str] = (),
    agents: Sequence[str] = (),
    bulk: bool = False,
    key_file: str | Path | None = None,
) -> str:
    """Sign a token that ``hanzo-pubsub serve --dev`` on this machine accepts.

    This is the token that ``hanzo-pubsub token`` prints. Use it in tests and notebooks only: a
    server without ``--dev`` rejects it.

    Args:
        user: The user id.
        kind: Kind of the identity; ``service`` may also publish to topics that no rule matches.
        ttl: Seconds or a timedelta until it expires; default an hour.
        orgs: Organizations the user is a member of.
        name: Display name; default: ``user``.
        sessions_owned: Chat sessions the user owns.
        sessions_shared: Chat sessions shared with the user.
        agents: Agents the user has access to.
        bulk: Whether batches over REST have a separate publish rate, as a job of Spark needs.
        key_file: The server's ``dev_key_file``; default: ``HANZO_PUBSUB_DEV_KEY_FILE``, otherwise
            ``hanzo-pubsub/dev.key`` in the user's state directory. Created if it does not exist;
            the folder of ``key_file`` must exist.

    Raises:
        InvalidOption: ``kind`` is unknown, or the key file cannot be used; the message states the
            reason.
        UsageError: The extra ``server`` is not installed.
    """
    try:
        from pubsub_server.auth import dev_tokens
    except ImportError as error:
        raise UsageError(
            "Development tokens require the server package.",
            remedy="Install it: pip install 'hanzoai.pubsub[server]'.",
        ) from error
    check_choice("kind", kind, get_args(Kind))
    named = key_file or os.environ.get(KEY_FILE)
    try:
        key = dev_tokens.load_key(Path(named) if named else None)
    except dev_tokens.KeyFileError as error:
        raise InvalidOption(
            f"{error}.",
            field="key_file",
            remedy="Pass the path of the server's key file, which only you may be able to read.",
        ) from error
    return dev_tokens.mint(
        key,
        user,
        kind=kind,
        ttl=ttl.total_seconds() if isinstance(ttl, timedelta) else ttl,
        orgs=orgs,
        name=name,
        sessions_owned=sessions_owned,
        sessions_shared=sessions_shared,
        agents=agents,
        bulk=bulk,
    )
