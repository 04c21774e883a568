"""Writes audit records to a Kafka topic, with TLS, authentication and helpful errors."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import secrets
import ssl
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from pubsub_server.access.setup import StartError
from pubsub_server.observe.audit_streams import CLOSE_WITHIN
from pubsub_server.shared.certificate_files import CertificateFileError, load_chain, trusting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pubsub_server.settings.config import Settings

REQUEST_WITHIN: Final = 10.0
"""Timeout of a request to a broker in seconds; then another broker or another attempt follows."""
PATIENCE: Final = 60.0
"""Seconds after which a producer without any success is replaced.

A producer repeats unacknowledged records with sequence numbers that the brokers know; another
producer does not have these numbers. So it is replaced late: when all brokers have moved.
"""
ERRORS_KEPT: Final = 20
"""Errors that are kept of one attempt."""
OTHER_NAME: Final = frozenset({62, 64})
"""The message of OpenSSL for a certificate of another host or address."""

_PROTOCOLS: Final = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}
"""Security protocols, by user and TLS."""

_collected: ContextVar[deque[BaseException] | None] = ContextVar("collected", default=None)


class _ErrorCollector(logging.Handler):
    """Keeps errors that aiokafka only logs, for the carrier whose task logs them.

    It also keeps these lines out of a JSON log.
    """

    def emit(self, record: logging.LogRecord) -> None:
        errors = _collected.get()
        arguments = record.args if isinstance(record.args, tuple) else ()
        if errors is not None:
            errors.extend(each for each in arguments if isinstance(each, BaseException))


_COLLECTOR: Final = _ErrorCollector(logging.WARNING)


def build_tls(settings: Settings) -> ssl.SSLContext | None:
    """TLS for the brokers: the trusted authority and the client certificate, if configured.

    Raises:
        StartError: The authority, certificate or key cannot be used.
    """
    if not settings.audit_kafka_tls:
        return None
    certificate, key = settings.audit_kafka_cert, settings.audit_kafka_key
    try:
        context = trusting("audit_kafka_ca", settings.audit_kafka_ca)
        if certificate is not None and key is not None:
            load_chain(context, ("audit_kafka_cert", certificate), ("audit_kafka_key", key))
    except CertificateFileError as error:
        raise StartError(str(error)) from None
    return context


class KafkaCarrier:
    """Produces into a topic, acknowledged by all replicas.

    All records of a carrier have one key, so they are in one partition, in order.

    Args:
        servers: `host:port` of some brokers.
        topic: The Kafka topic.
        tls: TLS settings; None for plaintext.
        user: User name; None for no authentication.
        password: Password of the user.
        mechanism: SASL: `SCRAM-SHA-512`, `SCRAM-SHA-256` or `PLAIN`.

    Raises:
        ImportError: The extra `kafka` is not installed.
    """

    name = "Kafka"
    patience = PATIENCE

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        *,
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
        mechanism: str = "SCRAM-SHA-512",
    ) -> None:
        # aiokafka has no types.
        kafka: Any = importlib.import_module("aiokafka")
        self._errors: Any = importlib.import_module("aiokafka.errors")
        options: dict[str, Any] = {
            "bootstrap_servers": list(servers),
            "acks": "all",
            "enable_idempotence": True,
            "request_timeout_ms": round(REQUEST_WITHIN * 1000),
            "security_protocol": ("SASL_" if user is not None else "")
            + ("SSL" if tls else "PLAINTEXT"),
            "ssl_context": tls,
        }
        if user is not None:
            options |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        self._make: Any = lambda: kafka.AIOKafkaProducer(**options)
        self._producer: Any = None
        self._servers = ", ".join(servers)
        self._topic = topic
        self._mechanism = mechanism
        self._key = secrets.token_hex(8).encode()
        self._logged: deque[BaseException] = deque(maxlen=ERRORS_KEPT)
        logging.getLogger("aiokafka").addHandler(_COLLECTOR)

    async def send(self, records: Sequence[bytes]) -> None:
        """See `Carrier`."""
        self._logged.clear()
        _collected.set(self._logged)
        if self._producer is None:
            producer = self._make()
            try:
                await producer.start()
            except BaseException:
                await _end(producer, at_once=True)
                raise
            self._producer = producer
        try:
            sent = [
                await self._producer.send(self._topic, record, key=self._key) for record in records
            ]
            await asyncio.gather(*sent)
        except BaseException:
            # The producer may have failed permanently; the next batch creates another one.
            producer, self._producer = self._producer, None
            await _end(producer, at_once=True)
            raise

    async def close(self) -> None:
        """See `Carrier`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _end(producer, at_once=False)

    def explain(self, error: Exception) -> str:
        """See `Carrier`."""
        seen = [*self._logged, error]
        remedies = [remedy for each in seen if (remedy := self._remedy(each)) is not None]
        if remedies:
            return remedies[0]
        kinds = dict.fromkeys(type(each).__name__ for each in seen)
        return f"audit_kafka: no broker at {self._servers} answers ({', '.join(kinds)})"

    def _remedy(self, error: BaseException) -> str | None:
        errors = self._errors
        for each in _causes(error):
            if isinstance(each, ssl.SSLError):
                return _tls_remedy(each)
            if isinstance(
                each, (errors.SaslAuthenticationFailed, errors.AuthenticationFailedError)
            ):
                return (
                    "audit_kafka_user, audit_kafka_password: the broker rejects them; set a user"
                    f" that exists for {self._mechanism}, and its password"
                )
            if isinstance(each, errors.UnsupportedSaslMechanismError):
                return (
                    f"audit_kafka_mechanism: the broker does not support {self._mechanism}; set one"
                    " that it supports"
                )
            if isinstance(each, errors.IllegalSaslStateError):
                return (
                    "audit_kafka_user: this port of the broker does not accept a user; leave it"
                    " out, or use the broker's SASL port"
                )
            if isinstance(each, errors.TopicAuthorizationFailedError):
                return (
                    f"audit_kafka_topic: writing to {self._topic} is not allowed; allow this user"
                    " `Write`, or set another topic"
                )
            if isinstance(each, errors.UnknownTopicOrPartitionError):
                return (
                    f"audit_kafka_topic: there is no {self._topic}, and the brokers do not create"
                    " it; create it, or set another"
                )
        if self._producer is None and isinstance(
            error.__cause__ or error, (asyncio.IncompleteReadError, ConnectionResetError)
        ):
            return (
                "audit_kafka: the broker closes the connection without an answer; if its port uses"
                " TLS, set audit_kafka_tls, otherwise leave it out; if it requires a user, set"
                " audit_kafka_user"
            )
        return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in OTHER_NAME:
            return (
                "audit_kafka: the broker's certificate is for another name"
                f" ({error.verify_message}); use the names in the certificates, here and in the"
                " brokers' `advertised.listeners`"
            )
        return (
            f"audit_kafka_ca: the broker's certificate is not trusted ({error.verify_message});"
            " give the certificate of the authority that signed it"
        )
    detail = str(error.reason or "").replace("_", " ").lower() or "it fails"
    if "certificate" in detail or "unknown ca" in detail:
        return (
            f"audit_kafka_cert, audit_kafka_key: the broker refuses the certificate ({detail});"
            " give one of an authority that it trusts"
        )
    return f"audit_kafka_tls: no TLS with the broker ({detail}); does this port use TLS?"


async def _end(producer: Any, *, at_once: bool) -> None:
    # `stop` would wait without a limit for acknowledgements, and repeat records even after another
    # producer has sent them.
    if not at_once:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_WITHIN):
                await producer.stop()
                return
    sender: asyncio.Task[None] | None = getattr(
        getattr(producer, "_sender", None), "sender_task", None
    )
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_WITHIN):
            while sender is not None and not sender.done():
                # The first cancellation starts a wait for requests, the second one ends it.
                sender.cancel()
                await asyncio.wait({sender}, timeout=0.01)
            accumulator: Any = getattr(producer, "_message_accumulator", None)
            if accumulator is not None:
                accumulator.fail_all(ConnectionError("ended"))
            await (producer.stop() if at_once else producer.client.close())
