"""API keys: a file contains their SHA-256 and permissions; the keys themselves are not stored.

A key is `hpk_` and 43 characters of 256 random bits, so a plain hash is enough: keys cannot be
guessed. The file is a YAML or JSON mapping `keys:` with a list of `{id, sha256, user, kind, name,
orgs, sessions_owned, sessions_shared, agents, bulk, expires_at}`; `id`, `sha256` and `user` are
required. The server reads the file again when it changes, in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from pubsub_server.auth.identity import (
    MAX_SECONDS,
    ClaimError,
    Identity,
    identity_from_claims,
    strip_bearer,
)
from pubsub_server.errors import ServiceError
from pubsub_server.settings import documents
from pubsub_server.shared.file_stamps import stamp
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "hpk_"
MAX_KEYS = 100_000
CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the file has changed."""

_HASH = re.compile(r"[0-9a-f]{64}")
_FIELDS = frozenset(
    {
        "id", "sha256", "user", "kind", "name", "avatar_url", "orgs", "sessions_owned",
        "sessions_shared", "agents", "bulk", "expires_at",
    }
)  # fmt: skip
_NAMES = {"user_id": "user", "key_id": "id", "avatar_url": "avatar_url"}
"""Fields of an entry whose names differ from the claims in tokens, by field of an identity."""
_LOG = logging.getLogger("pubsub_server.auth.api_keys")

_Keys = dict[str, tuple[str, Identity]]

OnWithdrawn = Callable[[Sequence[Identity], Sequence[Identity]], object]
"""Receives identities in use: those whose key was removed, and those whose entry changed."""


class ApiKeysError(ValueError):
    """The file of API keys is wrong; the text names the file and the key."""


def generate() -> tuple[str, str]:
    """A new key, and its hash for the file."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """SHA-256 of a key, hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()


class ApiKeys:
    """An authenticator that accepts the keys of one file.

    Args:
        file: YAML or JSON.
        clock: Unix seconds.

    Attributes:
        on_withdrawn: Called when entries were removed or changed and the file is stable again.

    Raises:
        ApiKeysError: The file is wrong. If a later version is wrong, the server logs it and keeps
            the keys that it has.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._seen = stamp(self._file)
        self._keys = load(file)
        self._former: list[_Keys] = []
        self._tasks: Tasks | None = None
        self.on_withdrawn: OnWithdrawn | None = None

    def start(self) -> None:
        """Check the file regularly."""
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "API keys")
        self._tasks.keep(self._watch)

    async def close(self) -> None:
        """Stop checking the file."""
        if self._tasks is not None:
            await self._tasks.stop()

    async def authenticate(self, token: str) -> Identity:
        """Checks a key.

        Raises:
            ServiceError: `token_invalid` or `token_expired`.
        """
        digest = hash_key(strip_bearer(token))
        known = self._keys.get(digest[:16])
        # The table is indexed by a part of the hash, and the rest is compared in constant time:
        # an attacker who measures time cannot choose keys with a hash close to another.
        if known is None or not hmac.compare_digest(known[0], digest):
            raise ServiceError("token_invalid", "the API key is unknown")
        identity = known[1]
        if identity.expires_at is not None and identity.expires_at <= self._clock() * 1000:
            raise ServiceError("token_expired", f"the API key {identity.key_id} has expired")
        return identity

    async def check(self) -> None:
        """Read the file again if it has changed."""
        now = stamp(self._file)
        if now == self._seen:
            self._report_withdrawn()
            return
        try:
            # A large file takes seconds.
            found = await asyncio.to_thread(load, self._file)
        except ApiKeysError as error:
            _LOG.error("keeping the previous API keys: %s", error)
            self._seen = now
            return
        self._seen = now
        self._former.append(self._keys)
        # An unchanged entry keeps its identity object: connections refer to it.
        for keys in self._former:
            found.update((at, entry) for at, entry in keys.items() if found.get(at) == entry)
        self._keys = found
        _LOG.info("loaded the API keys again: %s has %s", self._file, f"{len(found):,}")

    def _report_withdrawn(self) -> None:
        # Wait until the file is stable: it may have been read while it was written.
        if not self._former:
            return
        former, self._former = self._former, []
        before = [(at, who) for keys in former for at, (_, who) in keys.items()]
        gone = [who for at, who in before if at not in self._keys]
        other = [who for at, who in before if at in self._keys and self._keys[at][1] != who]
        if (gone or other) and self.on_withdrawn is not None:
            self.on_withdrawn(gone, other)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            await self.check()


def load(file: Path) -> _Keys:
    """The hash and identity of each key of a file, by the first 16 characters of the hash.

    Raises:
        ApiKeysError: Names the file, the key and the problem.
    """
    try:
        loaded = documents.mapping(documents.parse(documents.read(file)))
    except documents.DocumentError as error:
        raise ApiKeysError(f"{file}: {error}") from None
    entries = documents.sequence((loaded or {}).get("keys"))
    if entries is None or len(entries) > MAX_KEYS:
        raise ApiKeysError(
            f"{file}: must be a mapping `keys:` with a list of at most {MAX_KEYS:,} keys"
        )
    found: _Keys = {}
    for number, entry in enumerate(entries, 1):
        try:
            digest, identity = _entry(entry)
        except ValueError as error:
            raise ApiKeysError(f"{file}, key {number}: {error}") from None
        if digest[:16] in found:
            raise ApiKeysError(f"{file}, key {number}: an earlier key has the same sha256")
        found[digest[:16]] = (digest, identity)
    return found


def _entry(entry: object) -> tuple[str, Identity]:
    fields = documents.mapping(entry)
    if fields is None:
        raise ValueError("is not a mapping of id, sha256, user, …")
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise ValueError(f"unknown field `{unknown[0]}`; use {known}")
    digest = fields.get("sha256")
    if not isinstance(digest, str) or not _HASH.fullmatch(digest.lower()):
        raise ValueError(
            "`sha256` is not 64 hexadecimal characters; `hanzo-pubsub token --api-key` creates one"
        )
    if fields.get("id") is None:
        raise ValueError("`id` is missing; it names the key in the audit log")
    if fields.get("user") is None:
        raise ValueError("`user` is missing; it is the id of the user")
    claims = {
        **{k: v for k, v in fields.items() if k not in {"sha256", "expires_at"}},
        "exp": _expiry(fields["expires_at"]) if "expires_at" in fields else None,
    }
    try:
        return digest.lower(), identity_from_claims(claims, _NAMES)
    except ClaimError as error:
        # What YAML reads as a number, a truth value or a date.
        misread = not isinstance(fields.get(error.claim), str | list | dict)
        quoted = "; put it in quotes" if misread and error.expected.startswith("text") else ""
        raise ValueError(f"`{error.claim}` is not {error.expected}{quoted}") from None


def _expiry(value: object) -> float:
    if value is None:
        raise ValueError("`expires_at` is empty; leave it out for a key that does not expire")
    # YAML reads a date as a `date` or `datetime`, unless it is quoted.
    text = value.isoformat() if isinstance(value, date) else value
    try:
        parsed = datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(
            f"`expires_at` is {value!r}, not a date such as 2030-01-31T00:00:00Z"
        ) from None
    found = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    if found >= MAX_SECONDS:
        raise ValueError("`expires_at` is too late; leave it out for a key that does not expire")
    return found
