"""A Kafka broker for one test: a node with plaintext, TLS, client certificates and users."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme
from cryptography.hazmat.primitives import serialization

from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

# The package has no types.
KAFKA: Any = importlib.import_module("aiokafka")
ADMIN: Any = importlib.import_module("aiokafka.admin")
BOUND = 90
TOPIC_EXISTS = 36
"""The error code of a topic that an earlier request has created."""

USER = "audit"
PASSWORD = "correct horse battery staple"
LISTENERS = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_SSL", "CONTROLLER")
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LOGIN = (
    "listener.name.sasl_ssl.{}.sasl.jaas.config="
    "org.apache.kafka.common.security.{}LoginModule required{};"
)
LOGINS = (
    LOGIN.format("scram-sha-512", "scram.Scram", ""),
    LOGIN.format("scram-sha-256", "scram.Scram", ""),
    LOGIN.format("plain", "plain.Plain", f' user_{USER}="{PASSWORD}"'),
)
FORMAT = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
log.dirs={folder}/data
"""
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{CONTROLLER}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
broker.session.timeout.ms={session}
broker.heartbeat.interval.ms=200
offsets.topic.replication.factor=1
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN
{logins}
"""


def jars() -> Path:
    """Return the folder of its jars.

    Raises:
        RuntimeError: The jars are not installed.
    """
    pom = Path(__file__).with_name("kafka.pom.xml").read_text(encoding="utf-8")
    found = re.search(r"kafka_2\.13</artifactId>\s*<version>(.*)</version>", pom)
    assert found is not None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "hanzo-pubsub" / f"kafka-{found[1]}"
    if not folder.is_dir() or shutil.which("java") is None:
        raise RuntimeError("Kafka is not installed (`make setup` fetches it)")
    return folder


def _java(log: Path, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
    command = ["java", *JAVA, "-cp", f"{jars()}/*", name, *words]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)


@cache
def _formatted() -> Path:
    """Format the data of a broker once; each broker of this process copies it.

    Formatting needs a separate JVM.
    """
    folder = Path(tempfile.mkdtemp(prefix="pubsub-kafka-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    properties, log = folder / "server.properties", folder / "format.log"
    properties.write_text(FORMAT.format(folder=folder), encoding="utf-8")
    users = [
        word
        for kind in ("SCRAM-SHA-512", "SCRAM-SHA-256")
        for word in ("--add-scram", f"{kind}=[name={USER},password={PASSWORD}]")
    ]
    command: list[str | Path] = ["format", "-t", CLUSTER, "-c", properties, *users]
    if _java(log, "kafka.tools.StorageTool", *command).wait(BOUND):
        raise RuntimeError(log.read_text(encoding="utf-8"))
    return folder / "data"


class Kafka:
    """One broker. It does not create topics automatically.

    Args:
        folder: Folder for its files.
        session: Milliseconds without a heartbeat after which it leads no topic. A killed broker
            can only start again after this time.

    Attributes:
        authority: The authority that signed its certificate.
        ca, cert, key: Files for clients: the authority, and a client certificate with its key.
    """

    def __init__(self, folder: Path, session: int = 10_000) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in LISTENERS}
        self.authority = trustme.CA()
        self.ca, self.cert, self.key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
        self.authority.cert_pem.write_to_path(self.ca)
        client = self.authority.issue_cert("client.example")
        client.cert_chain_pems[0].write_to_path(self.cert)
        client.private_key_pem.write_to_path(self.key)
        broker = self.authority.issue_cert("127.0.0.1")
        # Kafka reads only this key format.
        private = serialization.load_pem_private_key(broker.private_key_pem.bytes(), None)
        pem = private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = b"".join(each.bytes() for each in broker.cert_chain_pems)
        (folder / "broker.pem").write_bytes(pem + chain)
        shown = {name: f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()}
        self._properties = folder / "server.properties"
        self._properties.write_text(
            PROPERTIES.format(
                **self.ports,
                listeners=",".join(shown.values()),
                advertised=",".join(shown[name] for name in LISTENERS if name != "CONTROLLER"),
                folder=folder,
                session=session,
                logins="\n".join(LOGINS),
            ),
            encoding="utf-8",
        )
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(_formatted(), folder / "data")

    def address(self, listener: str = "PLAINTEXT") -> str:
        """Return `host:port` of one of its listeners."""
        return f"127.0.0.1:{self.ports[listener]}"

    def trusting(self) -> ssl.SSLContext:
        """SSL context that trusts the broker."""
        return ssl.create_default_context(cafile=self.ca)

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self.folder / "broker.log"
        self._process = _java(log, "kafka.Kafka", self._properties)
        async with asyncio.timeout(BOUND):
            await until(self._answers, True)

    async def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "broker.log").read_text(encoding="utf-8"))
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.ports["PLAINTEXT"])
        except OSError:
            return False
        writer.close()
        return True

    def end(self) -> None:
        """Kill it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        assert self._process is not None
        self._process.send_signal(number)

    async def make(self, topic: str, partitions: int = 3) -> None:
        """Create a topic, and wait until its partitions accept records."""
        admin = ADMIN.AIOKafkaAdminClient(bootstrap_servers=self.address())
        await admin.start()

        async def made() -> bool:
            answer = await admin.create_topics([ADMIN.NewTopic(topic, partitions, 1)])
            return {code for _, code, *_ in answer.topic_errors} <= {0, TOPIC_EXISTS}

        try:
            # The controller refuses while it misses the heartbeats of a broker that is slow.
            async with asyncio.timeout(BOUND):
                await until(made)
        finally:
            await admin.close()
        # The end of a partition comes from its leader.
        assert len(await self.kept(topic)) == partitions

    async def kept(self, topic: str) -> list[Sequence[bytes]]:
        """Return the records of each partition of a topic."""
        consumer = KAFKA.AIOKafkaConsumer(
            topic, bootstrap_servers=self.address(), auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            parts = sorted(consumer.assignment())
            ends = await consumer.end_offsets(parts)
            found: dict[Any, list[bytes]] = {part: [] for part in parts}
            while any(len(found[part]) < ends[part] for part in parts):
                for part, records in (await consumer.getmany(timeout_ms=1000)).items():
                    found[part] += [record.value for record in records]
            return list(found.values())
        finally:
            await consumer.stop()
