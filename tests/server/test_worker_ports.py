"""Ports of several workers: reserved for them alone, and refused with a remedy."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from pubsub_server.settings.config import Settings
from pubsub_server.workers.ports import refused_port, reserve

HOST = "127.0.0.1"


def test_a_reserved_port_does_not_listen_and_its_workers_can() -> None:
    with reserve(HOST, 0) as reserved, socket.socket() as worker:
        port = reserved.getsockname()[1]
        assert port > 0
        with socket.socket() as client:
            assert client.connect_ex((HOST, port)) == errno.ECONNREFUSED
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind((HOST, port))
        worker.listen()


def test_a_port_on_which_workers_of_another_supervisor_listen_is_refused() -> None:
    with socket.socket() as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind((HOST, 0))
        worker.listen()
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            reserve(HOST, worker.getsockname()[1])


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        reserve("192.0.2.1", 0)


def test_a_port_that_is_taken_after_the_check_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    class Socket(socket.socket):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            made.append(self)

        def bind(self, address: Any, /) -> None:
            if self.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Socket)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        reserve(HOST, 0)
    assert made
    assert all(each.fileno() == -1 for each in made)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EADDRINUSE, "port 8056 of 10.0.0.1 is in use; choose another with --http-port"),
        (errno.EACCES, "port 8056 needs privileges; choose one above 1023 with --http-port"),
        (
            errno.EADDRNOTAVAIL,
            "host: cannot listen on 10.0.0.1, port 8056: this machine does not have the address",
        ),
    ],
)
def test_the_error_for_a_port_names_the_flag_or_the_reason(number: int, expected: str) -> None:
    settings = Settings(host="10.0.0.1", http_port=8056)
    error = OSError(number, os.strerror(number))
    assert str(refused_port(error, "http_port", settings)).startswith(expected)


def test_an_error_without_a_reason_is_quoted() -> None:
    settings = Settings(host="pubsub.invalid", http_port=8056)
    refused = refused_port(OSError("no such name"), "http_port", settings)
    assert str(refused) == "host: cannot listen on pubsub.invalid, port 8056: no such name"
