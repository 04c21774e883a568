"""Binds Unix sockets; asyncio would replace the socket of a program that runs."""

from __future__ import annotations

import errno
import os
import socket
import stat


def bind_unix(path: bytes, mode: int | None = None) -> socket.socket:
    """Bind a Unix socket. Replace an existing socket file if no program listens on it.

    Args:
        path: A file, or an abstract name after a zero byte.
        mode: Permissions of the file; None for those that the process gives to new files.

    Raises:
        OSError: A program listens on it, it is another kind of file, or it cannot be created.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            bound.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or path.startswith(b"\0") or not _is_stale(path):
                raise
            os.unlink(path)
            bound.bind(path)
        if mode is not None and not path.startswith(b"\0"):
            os.chmod(path, mode)
    except BaseException:
        bound.close()
        raise
    return bound


def _is_stale(path: bytes) -> bool:
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A program that hangs while its backlog is full would block a connection indefinitely.
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False
