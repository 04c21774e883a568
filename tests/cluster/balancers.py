"""HAProxy and nginx in front of a test's nodes, with the configurations of server-mock/deploy/."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trustme

from tests import forked
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

DEPLOY = Path(__file__).parents[2] / "server-mock" / "deploy"
NGINX = """daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{}
}}
"""
CERTIFICATE = "/etc/ssl/hanzo-pubsub/cert.pem"
BOUND = 60


def program(kind: str) -> str:
    """Return the path of the balancer's program.

    Raises:
        RuntimeError: The program is not installed.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(kind, path=path)
    if found is None:
        raise RuntimeError(f"{kind} is not installed (`make setup` installs it)")
    return found


class Upstream(Protocol):
    """The ports of a node behind a balancer."""

    @property
    def http_port(self) -> int: ...
    @property
    def ws_port(self) -> int: ...


class Balancer:
    """One address in front of several nodes. It terminates TLS with its own test certificate.

    Args:
        kind: `haproxy` or `nginx`.
        folder: Folder for its files.
        nodes: The nodes behind it.
        sticky: Whether a client always reaches the same node while that node is up: by `client` in
            the URL of the WebSocket, by its address over HTTP.

    Attributes:
        trust: SSL context with which a client trusts its certificate.
    """

    def __init__(self, kind: str, folder: Path, nodes: Sequence[Upstream], *, sticky: bool) -> None:
        self.kind = kind
        self.http_port, self.ws_port = free_port(), free_port()
        self.http = f"https://127.0.0.1:{self.http_port}"
        self.ws = f"wss://127.0.0.1:{self.ws_port}/ws"
        self.trust = ssl.create_default_context()
        self._folder = folder
        self._nodes = nodes
        self._sticky = sticky
        self._process: forked.Server | None = None

    async def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self._folder.mkdir()
        self._certify()
        make = self._haproxy if self.kind == "haproxy" else self._nginx
        file = self._folder / "balancer.cfg"
        file.write_text(make(), encoding="utf-8")
        options = ["-db", "-f"] if self.kind == "haproxy" else ["-p", str(self._folder), "-c"]
        with (self._folder / "balancer.log").open("wb") as log:
            self._process = await forked.command(program(self.kind), *options, str(file), log=log)
        async with asyncio.timeout(BOUND):
            for port in (self.http_port, self.ws_port):
                await until(partial(_takes, port))

    async def end(self) -> None:
        """Stop it, and close every connection through it."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    def _certify(self) -> None:
        authority = trustme.CA()
        authority.configure_trust(self.trust)
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self._folder / "cert.pem")
        issued.private_key_pem.write_to_path(self._folder / "cert.pem.key")

    def _haproxy(self) -> str:
        text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
        text = re.sub(r"inter \w+", "inter 100ms", text)
        text = text.replace("maxconn 100000", "maxconn 8000")
        if self._sticky:
            http, ws = text.split("backend ws\n    balance leastconn")
            http = http.replace("balance leastconn", "balance source\n    hash-type consistent")
            ws = "\n    balance url_param client\n    hash-type consistent" + ws
            text = f"{http}backend ws{ws}"
        return self._placed(text, "bind :{} ssl", "bind 127.0.0.1:{} ssl")

    def _nginx(self) -> str:
        text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
        if self._sticky:
            http, ws = text.split("upstream pubsub_ws {\n    least_conn;")
            http = http.replace("least_conn;", "ip_hash;")
            text = f"{http}upstream pubsub_ws {{\n    hash $arg_client consistent;{ws}"
        return NGINX.format(self._placed(text, "listen {} ssl;", "listen 127.0.0.1:{} ssl;"))

    def _placed(self, text: str, everywhere: str, here: str) -> str:
        """Replace the addresses and the certificate in the text by those of this test."""
        assert CERTIFICATE in text
        text = text.replace(CERTIFICATE, str(self._folder / "cert.pem"))
        for port, own in ((8056, self.http_port), (8057, self.ws_port)):
            assert everywhere.format(port) in text
            text = text.replace(everywhere.format(port), here.format(own))
        for number, node in enumerate(self._nodes, 1):
            text = text.replace(f"10.0.0.{number}:8056", f"127.0.0.1:{node.http_port}")
            text = text.replace(
                f"10.0.0.{number}:8057 check port 8056",
                f"10.0.0.{number}:8057 check port {node.http_port}",
            )
            text = text.replace(f"10.0.0.{number}:8057", f"127.0.0.1:{node.ws_port}")
        assert "10.0.0." not in text
        return text


async def _takes(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
