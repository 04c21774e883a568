"""A Unix socket replaces the file of a program that has ended, and no other."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    pytest.skip("no Unix sockets", allow_module_level=True)

from hanzoai.pubsub.network.unix_sockets import bind_unix


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "socket")


def assert_in_use(path: bytes) -> None:
    before = os.stat(path).st_ino
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        bind_unix(path)
    assert os.stat(path).st_ino == before


def test_the_file_of_a_program_that_has_ended_is_replaced(path: bytes) -> None:
    for mode in (0o600, 0o660):
        with bind_unix(path, mode):
            assert os.stat(path).st_mode & 0o777 == mode


def test_the_socket_of_a_program_that_hangs_is_not_replaced(path: bytes) -> None:
    with bind_unix(path) as hanging, socket.socket(socket.AF_UNIX) as client:
        hanging.listen(0)
        client.connect(path)
        assert_in_use(path)


def test_a_socket_of_another_kind_is_not_replaced(path: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)
        assert_in_use(path)


def test_a_file_that_is_no_socket_is_not_replaced(path: bytes) -> None:
    with open(path, "wb"):
        pass
    assert_in_use(path)
