"""The token of an executor: read from its source, and read again when the server rejects it."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import AuthError, InvalidOption, PubSubError
from hanzoai.pubsub.settings.checks import bare_token, check_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.spark.config import PubSubConfig


class Credentials:
    """The token of one process, shared by its threads.

    Args:
        config: Names the source.
    """

    def __init__(self, config: PubSubConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._token: str | None = None

    def token(self, refused: str | None = None) -> str:
        """Return the token; reads a new one if the current one is the rejected one.

        Raises:
            AuthError: There is no token; the message never contains one.
        """
        with self._lock:
            if self._token is None:
                self._token = self._read()
            elif self._token == refused:
                # A file that is being written is read again at the next rejection.
                with contextlib.suppress(AuthError):
                    self._token = self._read()
            return self._token

    def forget(self) -> None:
        """Read the token again at its next use: its owner may replace one that lacks a permission.

        Spark's processes outlive a failed job, and this object with them.
        """
        with self._lock:
            self._token = None

    def _read(self) -> str:
        config = self._config
        if config.token_file is not None:
            return _checked(
                _from_file(config.token_file),
                "The file of `token_file`",
                "Write only the bearer token or API key into it, on every executor, and for a"
                " source on the driver, too.",
                "token_file",
            )
        if config.credential_provider is not None:
            return _checked(
                _from_provider(config.credential_provider),
                f"The token of the credential provider {config.credential_provider}",
                "Return the bearer token or API key as str.",
                "credential_provider",
            )
        assert config.token_env is not None
        value = os.environ.get(config.token_env)
        if not value:
            raise AuthError(
                f"The environment variable {config.token_env} is not set.",
                remedy=(
                    "Set it in the environment of the executors, and for a source on the driver,"
                    " too. Or give `token_file` or `credential_provider`."
                ),
                field="token_env",
            )
        return _checked(
            value,
            f"The environment variable {config.token_env}",
            "Set it to the bearer token or API key.",
            "token_env",
        )


def _checked(value: object, source: str, remedy: str, field: str) -> str:
    try:
        return bare_token(check_token(value, field))
    except InvalidOption as error:
        problem = error.message.removeprefix(f"`{field}`")
        raise AuthError(f"{source}{problem}", remedy=remedy, field=field) from None


def _from_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise AuthError(
            f"The file of `token_file` cannot be read ({error.strerror}).",
            remedy="Mount it at this path on every executor, and for a source on the driver, too.",
            field="token_file",
        ) from None


def _from_provider(name: str) -> object:
    module, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        call: Callable[[], object] = found  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
        return call()
    except PubSubError:
        raise
    except Exception as error:
        # The text of the exception may contain a secret: report only its type.
        raise AuthError(
            f"The credential provider {name} failed with {type(error).__name__}.",
            remedy="Make it importable on executors, and return the token as str.",
            field="credential_provider",
        ) from None
