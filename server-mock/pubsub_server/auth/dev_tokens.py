"""Development tokens: signed and checked with a key that is only on this machine.

They are JWTs (HS256) of the issuer `hanzo-pubsub-dev`. Only a server started with `--dev` accepts
them, and it listens on loopback only. The key is created on first use, and only its owner can read
it.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import jwt

from hanzoai.pubsub.claims import identity_claims
from pubsub_server.auth.identity import Identity, Kind, identity_from_claims, strip_bearer
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ISSUER = "hanzo-pubsub-dev"
ALGORITHM = "HS256"
KEY_BYTES = 32


class KeyFileError(ValueError):
    """The development key cannot be read or is not safe to use; the text gives the reason."""


def default_key_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Path of the key: `hanzo-pubsub/dev.key` in the user's state directory (XDG_STATE_HOME)."""
    base = environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "hanzo-pubsub" / "dev.key"


def load_key(named: Path | None) -> bytes:
    """The key in a file, which is created with mode 0600 if it does not exist.

    Args:
        named: The file, in a folder that exists; None for the default file and folder.

    Raises:
        KeyFileError: It cannot be created or read, is too short, or other users can read it.
    """
    file = default_key_file() if named is None else named
    try:
        return _read(file)
    except FileNotFoundError:
        pass
    try:
        if named is None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not file.parent.exists():
            raise KeyFileError(
                f"the development key {file} cannot be created: its folder does not exist"
            )
        scratch = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as out:
                out.write(secrets.token_hex(KEY_BYTES) + "\n")
            # Two programs may get here at the same time: the first link counts, and both read that
            # key.
            os.link(scratch, file)
        except FileExistsError:
            pass
        finally:
            scratch.unlink()
        return _read(file)
    except OSError as error:
        raise KeyFileError(
            f"the development key {file} cannot be created: {error.strerror}"
        ) from None


def mint(
    key: bytes,
    user: str,
    *,
    kind: Kind = "user",
    orgs: Sequence[str] = (),
    ttl: float = 3600,
    name: str | None = None,
    avatar_url: str | None = None,
    sessions_owned: Sequence[str] = (),
    sessions_shared: Sequence[str] = (),
    agents: Sequence[str] = (),
    bulk: bool = False,
    now: float | None = None,
) -> str:
    """A development token.

    Args:
        key: From `load_key`.
        user: The `user_id`.
        kind: What the token is for.
        orgs: Organizations the user is a member of.
        ttl: Seconds until it expires; may be negative, for tests.
        name: Display name; the user id if absent.
        avatar_url: URL of a picture.
        sessions_owned: Chat sessions the user owns.
        sessions_shared: Chat sessions shared with the user.
        agents: Agents the user has access to.
        bulk: Whether it publishes in bulk.
        now: Unix seconds of issue.
    """
    issued = time.time() if now is None else now
    claims: dict[str, object] = {
        "iss": ISSUER,
        **identity_claims(
            user,
            kind,
            name=name,
            avatar_url=avatar_url,
            orgs=orgs,
            sessions_owned=sessions_owned,
            sessions_shared=sessions_shared,
            agents=agents,
            bulk=bulk,
        ),
        "iat": int(issued),
        "exp": issued + ttl,
        "jti": uuid.uuid4().hex[:12],
    }
    return jwt.encode(claims, key, algorithm=ALGORITHM)


class DevTokens:
    """An authenticator that accepts development tokens.

    Args:
        key: From `load_key`.
        clock: Unix seconds.
    """

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    async def authenticate(self, token: str) -> Identity:
        """Checks a token.

        Raises:
            ServiceError: `token_invalid` or `token_expired`.
        """
        try:
            claims = jwt.decode(
                strip_bearer(token),
                self._key,
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                options={
                    "require": ["exp", "iss", "sub"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError:
            raise ServiceError(
                "token_invalid",
                "the token was not signed with the development key of this machine",
                remedy="Get a token with `hanzo-pubsub token --user NAME`.",
            ) from None
        identity = identity_from_claims(claims)
        if identity.expires_at is not None and identity.expires_at <= self._clock() * 1000:
            raise ServiceError(
                "token_expired",
                "the development token has expired",
                remedy="Get a new token with `hanzo-pubsub token --user NAME`, or pass a callback"
                " that returns one.",
            )
        return identity


def _read(file: Path) -> bytes:
    try:
        key, mode = file.read_bytes().strip(), file.stat().st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"the development key {file} cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"other users can read the development key {file}; run `chmod 600` on it"
        )
    if len(key) < KEY_BYTES * 2:
        raise KeyFileError(f"the development key {file} is too short; delete it to create another")
    return key
